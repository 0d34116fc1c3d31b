// Saving and resuming whole engines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "common/float_bits.h"
#include "common/safetensors.h"
#include "tests/zero/engine_world.h"
#include "zero/engine.h"

namespace zpp::test {
namespace {

class EngineCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "zpp-engine-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  Training Make(int stage, bool compressed) const {
    Training t{.config = PlainConfig(stage), .params = MixedParams()};
    t.world = 4;
    t.nodes = 2;
    t.steps = 7;
    t.config.quantized_gradients = t.config.quantized_weights = compressed && stage > 0;
    t.config.zero_pp.enabled = compressed && stage > 0;
    t.config.zero_pp.quant_period = 5;
    return t;
  }
  // Saves after `step`; how it goes on must not change.
  static void SaveAfter(Training& t, int64_t step, const std::string& dir) {
    t.after_step = [step, dir](ZeroEngine& engine, const StepReport& report) {
      return report.step == step ? engine.Save(dir, "position 3") : Status();
    };
  }

  std::string dir_;
};

TEST_F(EngineCheckpoint, ResumingGivesTheBitsOfAnUnbrokenRun) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const auto mode : {ErrorFeedbackMode::kSecondHop, ErrorFeedbackMode::kBoth}) {
      for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
        SCOPED_TRACE(std::to_string(stage) + " " + std::string(DTypeName(type)));
        Training t = Make(stage, true);
        t.config.zero_pp.error_feedback = mode;
        t.config.compute = type;
        t.config.fp16.enabled = type == DType::kF16;
        t.config.fp16.initial_scale_power = 4;
        t.config.fp16.loss_scale_window = 2;  // grows between the save and the end
        const Trained unbroken = AgreedResult(Train(t));
        const std::string dir = dir_ + "/" + std::to_string(stage) + std::string(DTypeName(type));
        SaveAfter(t, 3, dir);
        EXPECT_TRUE(SameBits(AgreedResult(Train(t)).weights, unbroken.weights));
        t.after_step = {};
        t.resume_from = dir;
        const Trained resumed = AgreedResult(Train(t));
        ASSERT_EQ(resumed.reports.size(), 4u);
        EXPECT_EQ(resumed.reports[0].step, 4);
        EXPECT_EQ(resumed.reports[3].loss_scale, unbroken.reports[6].loss_scale);
        EXPECT_TRUE(SameBits(resumed.weights, unbroken.weights));
        EXPECT_TRUE(SameBits(resumed.replicas, unbroken.replicas));
        // Other buckets of the same training, too.
        t.config.reduce_bucket_elems = 2048;
        EXPECT_TRUE(SameBits(AgreedResult(Train(t)).weights, unbroken.weights));
      }
    }
  }
}

double Distance(const Trained& a, const Trained& b) {
  double diff = 0, norm = 0;
  for (size_t p = 0; p < a.weights.size(); ++p) {
    for (size_t i = 0; i < a.weights[p].size(); ++i) {
      diff += std::pow(double{a.weights[p][i]} - double{b.weights[p][i]}, 2);
      norm += std::pow(double{b.weights[p][i]}, 2);
    }
  }
  return std::sqrt(diff / norm);
}

TEST_F(EngineCheckpoint, ContinuesOnAnotherWorldAndStage) {
  for (const bool compressed : {false, true}) {
    Training t = Make(3, compressed);
    const std::string dir = dir_ + (compressed ? "/packed" : "/plain");
    SaveAfter(t, 4, dir);
    t.steps = 4;
    const Trained saved = AgreedResult(Train(t));
    t.after_step = {};
    t.resume_from = dir;
    for (const int world : {1, 2, 3, 4, 8}) {
      for (const int stage : {0, 2, 3}) {
        SCOPED_TRACE(std::to_string(world) + " " + std::to_string(stage));
        Training other = t;
        other.world = world;
        other.nodes = world > 1 ? 2 : 1;
        other.config.stage = stage;
        if (stage == 0) {
          other.config.quantized_gradients = other.config.quantized_weights = false;
        }
        // Nothing is lost on the way: the masters are those that were saved.
        EXPECT_TRUE(SameBits(AgreedResult(Train(other)).weights, saved.weights));
        other.steps = 6;
        const Trained on = AgreedResult(Train(other));
        ASSERT_EQ(on.reports.size(), 2u);
        EXPECT_GT(Distance(on, saved), 0);
        EXPECT_LT(Distance(on, saved), 0.5);
      }
    }
  }
}

// What residuals owe is neither lost nor doubled when the world changes: after an exact step, which
// flushes them, SGD's weights have moved by the sum of all gradients.
TEST_F(EngineCheckpoint, ResidualsSurviveAChangeOfWorld) {
  for (const auto mode : {ErrorFeedbackMode::kSecondHop, ErrorFeedbackMode::kBoth}) {
    Training t = Make(2, true);
    t.config.optimizer = OptimizerType::kSgd;
    t.config.sgd = {.lr = 1.0};
    t.config.gradient_clipping = 0;
    t.config.quantized_weights = false;
    t.config.zero_pp.error_feedback = mode;
    // The first hop has no feedback of its own then.
    if (mode == ErrorFeedbackMode::kSecondHop) t.config.zero_pp.intra_bits = 16;
    t.config.zero_pp.residual = ResidualType::kF32;
    t.spoil = [](int, int64_t step, int, int param, std::vector<float>& grad) {
      for (size_t i = 0; i < grad.size(); ++i) {
        grad[i] = std::sin(static_cast<float>(i * 7 + static_cast<size_t>(step * 31 + param)));
      }
    };
    t.steps = 5;  // the fifth is exact
    Training plain = t;
    plain.config.quantized_gradients = false;
    const Trained truth = AgreedResult(Train(plain));
    const std::string dir = dir_ + "/" + std::string(ErrorFeedbackName(mode));
    SaveAfter(t, 3, dir);
    const Trained same_world = AgreedResult(Train(t));
    EXPECT_LT(Distance(same_world, truth), 1e-5);
    t.after_step = {};
    t.resume_from = dir;
    for (const int world : {2, 3, 8}) {
      Training other = t;
      other.world = world;
      other.nodes = 2;
      EXPECT_LT(Distance(AgreedResult(Train(other)), truth), 1e-5) << world;
    }
  }
}

TEST_F(EngineCheckpoint, RefusesAnotherModelByName) {
  Training t = Make(1, false);
  SaveAfter(t, 2, dir_);
  t.steps = 2;
  AgreedResult(Train(t));
  t.after_step = {};
  t.resume_from = dir_;
  Training other = t;
  other.params[1].shape = {128, 96};
  for (const auto& rank : Train(other)) {
    EXPECT_EQ(rank.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(rank.status().message(), testing::HasSubstr("'w1' is (96, 128)"));
  }
  other = t;
  other.params.pop_back();
  for (const auto& rank : Train(other)) {
    EXPECT_THAT(rank.status().message(), testing::HasSubstr("w3"));
  }
}

TEST_F(EngineCheckpoint, RefusesAnotherOptimizer) {
  Training t = Make(1, false);
  t.config.optimizer = OptimizerType::kSgd;
  t.config.sgd = {.lr = 0.01};
  SaveAfter(t, 2, dir_);
  t.steps = 2;
  AgreedResult(Train(t));
  t.after_step = {};
  t.resume_from = dir_;
  t.config.optimizer = OptimizerType::kAdamW;
  for (const auto& rank : Train(t)) EXPECT_FALSE(rank.ok());
}

TEST_F(EngineCheckpoint, OneRanksFailureIsEveryones) {
  Training t = Make(2, true);
  t.resume_from = dir_ + "/nothing";
  for (const auto& rank : Train(t)) EXPECT_EQ(rank.status().code(), StatusCode::kNotFound);
}

TEST_F(EngineCheckpoint, GathersWeightsIntoOneFile) {
  for (int stage = 0; stage <= 3; ++stage) {
    Training t = Make(stage, false);
    t.config.compute = DType::kBF16;
    const std::string path = dir_ + "/model" + std::to_string(stage) + ".safetensors";
    t.after_step = [path](ZeroEngine& engine, const StepReport& report) {
      return report.step == 7 ? engine.SaveWeights(path) : Status();
    };
    AgreedResult(Train(t));
    ASSERT_TRUE(std::filesystem::exists(path));
  }
  const auto bytes = [&](int stage) {
    std::ifstream in(dir_ + "/model" + std::to_string(stage) + ".safetensors", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_GT(bytes(0).size(), 2u * (64 * 32 + 96 * 128 + 40 * 100 + 33 * 256));
  for (int stage = 1; stage <= 3; ++stage) EXPECT_EQ(bytes(stage), bytes(0));
}

// Replicas that follow by differences are not what is exported.
TEST_F(EngineCheckpoint, ExportsTheMastersAlsoBesideCheckpoints) {
  for (int stage = 1; stage <= 3; ++stage) {
    Training t = Make(stage, true);
    t.config.compute = DType::kBF16;
    t.config.gather_16bit_on_save = true;
    t.steps = 3;
    const std::string dir = dir_ + "/" + std::to_string(stage);
    SaveAfter(t, 3, dir);
    const Trained trained = AgreedResult(Train(t));
    auto file = SafetensorsFile::Open(dir + "/weights.safetensors");
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    for (size_t p = 0; p < t.params.size(); ++p) {
      const StoredTensor* tensor = file->Find(t.params[p].name);
      ASSERT_NE(tensor, nullptr);
      std::vector<uint16_t> bits(trained.weights[p].size());
      ASSERT_TRUE(file->Read(*tensor, 0, std::as_writable_bytes(std::span(bits))).ok());
      for (size_t i = 0; i < bits.size(); ++i) {
        ASSERT_EQ(bits[i], BF16FromF32(trained.weights[p][i])) << t.params[p].name << " " << i;
      }
    }
    t.after_step = {};
    t.resume_from = dir;  // the file beside them does not disturb
    EXPECT_TRUE(SameBits(AgreedResult(Train(t)).weights, trained.weights));
  }
}

}  // namespace
}  // namespace zpp::test
