// Calls at odd moments, skipped steps, and settings in all combinations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "tests/zero/engine_world.h"
#include "zero/engine.h"

namespace zpp::test {
namespace {

Training Make(int stage, bool compressed = false) {
  Training t{.config = PlainConfig(stage), .params = MixedParams()};
  t.world = 4;
  t.nodes = 2;
  t.config.zero_pp.enabled = compressed;
  t.config.quantized_gradients = t.config.quantized_weights = compressed;
  t.config.zero_pp.quant_period = compressed ? 3 : 0;
  return t;
}

void WithLossScale(Training& t, int power, int64_t window) {
  t.config.fp16.enabled = true;
  t.config.fp16.initial_scale_power = power;
  t.config.fp16.loss_scale_window = window;
  t.config.fp16.hysteresis = 1;
}

// Steps count from 0.
void OverflowAt(Training& t, int64_t at) {
  t.spoil = [at](int rank, int64_t step, int micro, int param, std::vector<float>& grad) {
    if (rank == 1 && step == at && micro == 0 && param == 7) grad[70] = INFINITY;
  };
}

void Refused(const Status& status, const char* what) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
  EXPECT_THAT(status.message(), testing::HasSubstr(what));
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

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "zpp-edges-XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Reductions of the step that is given up are on their way when new weights come.
TEST(EngineMoments, LoadingInTheMiddleOfAStepStartsAnew) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const bool compressed : {false, true}) {
      if (compressed && stage == 0) continue;
      SCOPED_TRACE(std::to_string(stage) + (compressed ? " compressed" : " plain"));
      Training t = Make(stage, compressed);
      t.config.accumulation_steps = 2;
      t.config.reduce_bucket_elems = 2048;
      const Trained unbroken = AgreedResult(Train(t));
      const TempDir dir;
      const Trained again = AgreedResult(OnRanks(t, [&](Communicator& comm) -> Result<Trained> {
        ZPP_ASSIGN_OR_RETURN(const auto engine, MakeEngine(comm, t));
        Trained out;
        for (const int gradients : {0, 1, 4}) {
          ZPP_RETURN_IF_ERROR(MicroBatch(*engine, t, comm.rank(), 0, &out));
          ZPP_RETURN_IF_ERROR(MicroBatch(*engine, t, comm.rank(), 1, &out, gradients));
          ZPP_RETURN_IF_ERROR(LoadInitialWeights(*engine, t));
        }
        Training first = t;
        first.steps = 2;
        ZPP_RETURN_IF_ERROR(TrainOn(*engine, first, comm.rank(), &out));
        ZPP_RETURN_IF_ERROR(engine->Save(dir.path()));
        ZPP_RETURN_IF_ERROR(MicroBatch(*engine, t, comm.rank(), 0, &out));
        ZPP_RETURN_IF_ERROR(MicroBatch(*engine, t, comm.rank(), 1, &out, 3));
        ZPP_RETURN_IF_ERROR(engine->Load(dir.path()).status());
        ZPP_RETURN_IF_ERROR(TrainOn(*engine, t, comm.rank(), &out));
        ZPP_RETURN_IF_ERROR(ReadAll(*engine, t, &out));
        return out;
      }));
      EXPECT_TRUE(SameBits(again.weights, unbroken.weights));
      EXPECT_TRUE(SameBits(again.replicas, unbroken.replicas));
    }
  }
}

TEST(EngineMoments, SavingInTheMiddleOfAStepIsRefused) {
  Training t = Make(3);
  t.config.accumulation_steps = 2;
  const TempDir dir;
  for (const auto& rank : OnRanks(t, [&](Communicator& comm) -> Result<Trained> {
         ZPP_ASSIGN_OR_RETURN(const auto engine, MakeEngine(comm, t));
         Trained out;
         ZPP_RETURN_IF_ERROR(MicroBatch(*engine, t, comm.rank(), 0, &out, 1));
         Refused(engine->Save(dir.path()), "step 1 has begun");
         return out;
       })) {
    EXPECT_TRUE(rank.ok()) << rank.status().ToString();
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

// What can be put right leaves everything as it was.
TEST(EngineMoments, AStepThatIsRefusedCanBeMadeLater) {
  for (const bool compressed : {false, true}) {
    Training t = Make(3, compressed);
    const Trained reference = AgreedResult(Train(t));
    const Trained got = AgreedResult(OnRanks(t, [&](Communicator& comm) -> Result<Trained> {
      ZPP_ASSIGN_OR_RETURN(const auto engine, MakeEngine(comm, t));
      Trained out;
      ZPP_RETURN_IF_ERROR(MicroBatch(*engine, t, comm.rank(), 0, &out));
      ZPP_RETURN_IF_ERROR(engine->Gather(1));
      Refused(engine->Step().status(), "unit 1 is still gathered");
      Refused(LoadInitialWeights(*engine, t), "unit 1 is still gathered");
      Refused(engine->Load("nowhere").status(), "unit 1 is still gathered");
      ZPP_RETURN_IF_ERROR(engine->Release(1));
      for (const double rate : {std::numeric_limits<double>::quiet_NaN(), -1.0}) {
        engine->set_learning_rate(rate);
        Refused(engine->Step().status(), "lr");
      }
      engine->set_learning_rate(t.config.adam.lr);
      ZPP_ASSIGN_OR_RETURN(StepReport report, engine->Step());
      EXPECT_EQ(report.step, 1);
      ZPP_RETURN_IF_ERROR(TrainOn(*engine, t, comm.rank(), &out));
      ZPP_RETURN_IF_ERROR(ReadAll(*engine, t, &out));
      return out;
    }));
    EXPECT_TRUE(SameBits(got.weights, reference.weights));
    EXPECT_TRUE(SameBits(got.replicas, reference.replicas));
  }
}

// A checkpoint that turns out to be broken half-way must not be trained on from.
TEST(EngineMoments, AFailedLoadSticksUntilAGoodOne) {
  Training t = Make(2, true);
  const TempDir dir;
  for (const auto& rank : OnRanks(t, [&](Communicator& comm) -> Result<Trained> {
         ZPP_ASSIGN_OR_RETURN(const auto engine, MakeEngine(comm, t));
         Trained out;
         EXPECT_EQ(engine->Load(dir.path()).status().code(), StatusCode::kNotFound);
         ZPP_RETURN_IF_ERROR(TrainOn(*engine, t, comm.rank(), &out));  // nothing was lost
         ZPP_RETURN_IF_ERROR(engine->Save(dir.path()));
         if (comm.rank() == 0) {
           for (const auto& file : std::filesystem::recursive_directory_iterator(dir.path())) {
             if (file.path().extension() != ".safetensors") continue;
             std::fstream shard(file.path(), std::ios::in | std::ios::out | std::ios::binary);
             shard.seekp(static_cast<std::streamoff>(std::filesystem::file_size(file.path()) / 2));
             shard.write("XXXXXXXXXXXXXXXX", 16);
           }
         }
         ZPP_RETURN_IF_ERROR(comm.Barrier());
         EXPECT_EQ(engine->Load(dir.path()).status().code(), StatusCode::kDataLoss);
         const Status later = MicroBatch(*engine, t, comm.rank(), 0, &out);
         EXPECT_EQ(later.code(), StatusCode::kDataLoss);
         EXPECT_THAT(later.message(), testing::HasSubstr("a Load() that failed"));
         EXPECT_EQ(engine->Save(dir.path()).code(), StatusCode::kDataLoss);
         ZPP_RETURN_IF_ERROR(LoadInitialWeights(*engine, t));
         return out;
       })) {
    EXPECT_TRUE(rank.ok()) << rank.status().ToString();
  }
}

// An engine that goes in the middle of a step takes nothing with it: the next one on the same
// communicator gives the bits of the only one.
TEST(EngineMoments, AnEngineMayGoInTheMiddleOfAStep) {
  for (int stage = 0; stage <= 3; ++stage) {
    Training t = Make(stage, stage > 0);
    t.config.reduce_bucket_elems = 2048;
    const Trained reference = AgreedResult(Train(t));
    const Trained second = AgreedResult(OnRanks(t, [&](Communicator& comm) -> Result<Trained> {
      {
        ZPP_ASSIGN_OR_RETURN(const auto first, MakeEngine(comm, t));
        Training two = t;
        two.steps = 2;
        Trained unused;
        ZPP_RETURN_IF_ERROR(TrainOn(*first, two, comm.rank(), &unused));
        ZPP_RETURN_IF_ERROR(first->Gather(0));  // and what it prefetches
        ZPP_RETURN_IF_ERROR(MicroBatch(*first, t, comm.rank(), 0, &unused, 4));
      }
      return TrainRank(comm, t);
    }));
    EXPECT_TRUE(SameBits(second.weights, reference.weights)) << stage;
  }
}

// A rank that gives up ends the others' calls, in this step and later, and all can be destroyed.
TEST(EngineMoments, ALostRankEndsTheStepOfAll) {
  for (int stage = 0; stage <= 3; ++stage) {
    Training t = Make(stage, stage > 0);
    t.config.reduce_bucket_elems = 2048;
    const auto all = OnRanks(t, [&](Communicator& comm) -> Result<Trained> {
      ZPP_ASSIGN_OR_RETURN(const auto engine, MakeEngine(comm, t));
      Trained out;
      const bool leaves = comm.rank() == 3;
      Status status = MicroBatch(*engine, t, comm.rank(), 0, &out, leaves ? 2 : -1);
      if (leaves) return Internal("gave up");
      if (status.ok()) status = engine->Step().status();
      EXPECT_EQ(RemedyFor(status.code()), Remedy::kRebuild) << status.ToString();
      const float one = 1;
      EXPECT_FALSE(engine->AddGradient(4, {DType::kF32, &one, 1}).ok());
      EXPECT_FALSE(engine->EndMicroBatch().ok());
      EXPECT_FALSE(engine->Step().ok());
      EXPECT_FALSE(engine->Save("nowhere").ok());
      EXPECT_FALSE(LoadInitialWeights(*engine, t).ok());
      return status;
    });
    for (const auto& rank : all) EXPECT_FALSE(rank.ok());
  }
}

// What only decides when bytes move, or where states lie.
TEST(EngineSpeed, SettingsOfSpeedChangeNoBits) {
  const std::vector<std::function<void(ZeroConfig&)>> changes = {
      [](ZeroConfig& c) { c.overlap_comm = false; },
      [](ZeroConfig& c) { c.allgather_bucket_elems = 1; },
      [](ZeroConfig& c) { c.zero_pp.use_contiguous_buffers = false; },
      [](ZeroConfig& c) { c.prefetch_bucket_elems = 0; },
      [](ZeroConfig& c) { c.max_reuse_distance_elems = 0; },
      [](ZeroConfig& c) { c.max_live_elems = 1; },
      [](ZeroConfig& c) { c.sub_group_elems = 5000; },
      [](ZeroConfig& c) { c.offload_optimizer = {.enabled = true, .pin_memory = true}; }};
  for (int stage = 1; stage <= 3; ++stage) {
    Training t = Make(stage, true);
    t.config.compute = DType::kBF16;
    t.config.accumulation_steps = 2;
    const Trained reference = AgreedResult(Train(t));
    for (size_t i = 0; i < changes.size(); ++i) {
      Training changed = t;
      changes[i](changed.config);
      const Trained got = AgreedResult(Train(changed));
      EXPECT_TRUE(SameBits(got.weights, reference.weights)) << stage << ", change " << i;
      EXPECT_TRUE(SameBits(got.replicas, reference.replicas)) << stage << ", change " << i;
    }
  }
}

// quant_period counts the steps that the optimizer made: an exact step that overflows is made up.
TEST(EngineSkips, ASkippedExactStepIsMadeUpFor) {
  Training t = Make(2, true);
  WithLossScale(t, 8, 1000);
  OverflowAt(t, 2);
  t.steps = 4;
  const Trained got = AgreedResult(Train(t));
  ASSERT_EQ(got.reports.size(), 4u);
  EXPECT_TRUE(got.reports[2].skipped);
  EXPECT_TRUE(got.reports[2].exact);
  EXPECT_TRUE(got.reports[3].exact);
  EXPECT_FALSE(got.reports[3].skipped);
  EXPECT_TRUE(SameBits(got.replicas, got.weights));  // fp32: no drift after an exact step
  t.steps = 7;
  const Trained later = AgreedResult(Train(t));
  EXPECT_FALSE(later.reports[5].exact);
  EXPECT_TRUE(later.reports[6].exact);
}

// A skip changes the loss scale and nothing else: with a power of two, not one bit of the weights.
TEST(EngineSkips, SkippedStepsLeaveNoTrace) {
  for (int stage = 0; stage <= 3; ++stage) {
    Training t = Make(stage);
    WithLossScale(t, 8, 1000);
    const auto by_applied = [](int64_t skipped_at) {
      return [skipped_at](int rank, int64_t step, int, int param, std::vector<float>& grad) {
        const auto applied = static_cast<double>(step > skipped_at ? step - 1 : step);
        const float scale = skipped_at < step ? 128 : 256;
        for (size_t i = 0; i < grad.size(); ++i) {
          grad[i] =
              scale * static_cast<float>(std::sin(static_cast<double>(i) + applied * 5 + rank));
        }
        if (step == skipped_at && rank == 2 && param == 0) grad[3] = NAN;
      };
    };
    t.spoil = by_applied(2);
    t.steps = 6;
    const Trained skipped = AgreedResult(Train(t));
    EXPECT_TRUE(skipped.reports[2].skipped);
    t.spoil = by_applied(1000);
    t.steps = 5;
    EXPECT_TRUE(SameBits(skipped.weights, AgreedResult(Train(t)).weights)) << stage;
  }
}

// The scale grows between a step's gradients and their use, or does it: the true gradient is
// applied, so that in fp32 scaling by powers of two changes not one bit, residuals included.
TEST(EngineSkips, GrowingScalesApplyTheTrueGradient) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const auto mode : {ErrorFeedbackMode::kOff, ErrorFeedbackMode::kBoth}) {
      Training t = Make(stage, stage > 0);
      t.config.zero_pp.error_feedback = mode;
      t.config.zero_pp.quant_period = 4;
      t.config.accumulation_steps = 2;
      t.steps = 7;
      const Trained plain = AgreedResult(Train(t));
      WithLossScale(t, 4, 2);
      const Trained scaled = AgreedResult(Train(t));
      EXPECT_EQ(scaled.reports[0].loss_scale, 16);
      EXPECT_GE(scaled.reports[6].loss_scale, 64);
      EXPECT_TRUE(SameBits(scaled.weights, plain.weights)) << stage;
      for (size_t s = 0; s < 7; ++s) {
        EXPECT_DOUBLE_EQ(scaled.reports[s].grad_norm, plain.reports[s].grad_norm);
      }
    }
  }
}

// hpZ's copies are of one version of the weights: also when a step was skipped, before exact
// steps, and after other weights were loaded.
TEST(EngineHpzVersions, CopiesFollowSkipsExactStepsAndLoads) {
  for (const bool compressed : {false, true}) {
    Training t = Make(3, compressed);
    WithLossScale(t, 8, 1000);
    OverflowAt(t, 1);
    t.config.zero_pp.quant_period = compressed ? 2 : 0;
    t.config.accumulation_steps = 2;
    const auto run = [&] {
      return AgreedResult(OnRanks(t, [&](Communicator& comm) -> Result<Trained> {
        ZPP_ASSIGN_OR_RETURN(const auto engine, MakeEngine(comm, t));
        Trained out;
        ZPP_RETURN_IF_ERROR(TrainOn(*engine, t, comm.rank(), &out));
        ZPP_RETURN_IF_ERROR(LoadInitialWeights(*engine, t));
        ZPP_RETURN_IF_ERROR(ReadAll(*engine, t, &out));
        const auto initial = out.replicas;
        ZPP_RETURN_IF_ERROR(TrainOn(*engine, t, comm.rank(), &out));
        ZPP_RETURN_IF_ERROR(ReadAll(*engine, t, &out));
        out.weights.insert(out.weights.end(), initial.begin(), initial.end());
        return out;
      }));
    };
    const Trained off = run();
    t.config.hpz_partition_size = 2;
    const Trained on = run();
    EXPECT_TRUE(SameBits(on.weights, off.weights));
    EXPECT_TRUE(SameBits(on.replicas, off.replicas));
  }
}

TEST(EngineNorm, AnOverflowInAnUncountedCopyIsNoticed) {
  for (int stage = 0; stage <= 3; ++stage) {
    Training t = Make(stage);
    t.params[7].counts_in_norm = false;
    WithLossScale(t, 8, 1000);
    OverflowAt(t, 1);
    const Trained got = AgreedResult(Train(t));
    EXPECT_TRUE(got.reports[1].skipped) << stage;
    EXPECT_EQ(got.reports[2].loss_scale, 128);
  }
}

// They decide which collectives a step makes, or what its result is.
TEST(EngineOptionsCheck, RanksThatDifferAreToldSo) {
  const auto differ = [](const std::function<void(Training&)>& change, const char* what) {
    Training t = Make(1, true);
    for (const auto& rank : OnRanks(t, [&](Communicator& comm) -> Result<Trained> {
           Training mine = t;
           if (comm.rank() == 2) change(mine);
           return TrainRank(comm, mine);
         })) {
      EXPECT_EQ(rank.status().code(), StatusCode::kMismatch) << what;
      EXPECT_THAT(rank.status().message(), testing::HasSubstr(what));
    }
  };
  differ([](Training& t) { t.options.audit.every = 2; }, "the audit");
  differ([](Training& t) { t.options.seed = 9; }, "the seed");
  differ([](Training& t) { t.params[0].counts_in_norm = false; }, "the list of parameters");
}

TEST(EngineOptionsCheck, SettingsThatWouldDoNothingAreRefused) {
  const auto refuse = [](int stage, const std::function<void(ZeroConfig&)>& change,
                         const char* what) {
    Training t = Make(stage);
    t.world = t.nodes = 1;
    change(t.config);
    for (const auto& rank : Train(t)) Refused(rank.status(), what);
  };
  refuse(
      0, [](ZeroConfig& c) { c.quantized_gradients = true; }, "need stage 1, 2 or 3");
  refuse(
      0, [](ZeroConfig& c) { c.zero_pp.reduce_every_micro_batch = true; }, "need stage 1");
  refuse(
      1, [](ZeroConfig& c) { c.zero_pp.intra_bits = 5; }, "4, 8 or 16 bits, not 5");
  refuse(
      1, [](ZeroConfig& c) { c.adam.lr = -1; }, "lr");
}

// Whatever goes together: finite, equal on all ranks, whatever the buckets, near the uncompressed
// run, and resumed to the bit.
class Combinations : public testing::TestWithParam<int> {};

TEST_P(Combinations, HoldTogether) {
  std::mt19937 random(static_cast<uint32_t>(GetParam()));
  const auto pick = [&random](auto... options) {
    const std::vector values{options...};
    return values[random() % values.size()];
  };
  Training t = Make(pick(1, 2, 3), true);
  t.world = pick(1, 2, 3, 4, 5);
  t.nodes = std::min(t.world, pick(1, 2, 3));
  t.steps = 7;
  ZeroConfig& c = t.config;
  c.compute = pick(DType::kF32, DType::kF16, DType::kBF16);
  if (pick(0, 1) == 1) c.communication = pick(DType::kF32, DType::kBF16);
  if (c.compute == DType::kF16) WithLossScale(t, 6, 2);
  if (c.compute == DType::kF16) OverflowAt(t, pick(1, 2, 3));
  c.accumulation_steps = pick(1, 3);
  c.overlap_comm = pick(0, 1) == 1;
  c.quantized_weights = pick(0, 1, 1) == 1;
  c.optimizer = pick(OptimizerType::kAdamW, OptimizerType::kAdam, OptimizerType::kSgd);
  c.sgd = {.lr = 0.05, .momentum = pick(0.0, 0.9)};
  c.adam.decoupled = c.optimizer == OptimizerType::kAdamW;
  c.offload_optimizer.enabled = pick(0, 1) == 1;
  c.prefetch_bucket_elems = pick(0, 1 << 20);
  c.max_reuse_distance_elems = pick(0, 1 << 20);
  c.persistence_threshold_elems = pick(0, 100, 5000);
  c.allgather_bucket_elems = pick(1, 6000, 1 << 20);
  ZeroPpConfig& pp = c.zero_pp;
  pp.quant_bits = pick(4, 8, 16);
  pp.intra_bits = pick(8, 4, 16);
  pp.weight_bits = pick(8, 16);
  pp.quant_period = pick(0, 2, 3);
  pp.use_contiguous_buffers = pick(0, 1) == 1;
  pp.error_feedback =
      pick(ErrorFeedbackMode::kOff, ErrorFeedbackMode::kSecondHop, ErrorFeedbackMode::kBoth);
  pp.residual = pick(ResidualType::kF32, ResidualType::kBF16, ResidualType::kInt8);
  pp.rounding = pick(Rounding::kNearest, Rounding::kStochastic);
  pp.compress_1d = pick(0, 1) == 1;
  pp.reduce_every_micro_batch = pick(0, 1) == 1;
  if (pick(0, 1) == 1) t.params[4].trainable = t.params[1].trainable = false;
  if (c.stage == 3 && t.world % t.nodes == 0 && t.world / t.nodes == 2) {
    c.hpz_partition_size = pick(1, 2);
  }
  SCOPED_TRACE(ToJson(c).dump() + " ranks " + std::to_string(t.world) + " nodes " +
               std::to_string(t.nodes));

  const Trained reference = AgreedResult(Train(t));
  for (const auto& values : {reference.weights, reference.replicas}) {
    for (const auto& w : values) {
      for (const float x : w) ASSERT_TRUE(std::isfinite(x));
    }
  }
  Training plain = t;
  plain.config.quantized_gradients = plain.config.quantized_weights = false;
  EXPECT_LT(Distance(reference, AgreedResult(Train(plain))), 0.4);

  const TempDir dir;
  const int64_t saved = pick(1, 2, 3, 4);
  t.config.reduce_bucket_elems = 2048;
  t.after_step = [&](ZeroEngine& engine, const StepReport& report) {
    return report.step == saved ? engine.Save(dir.path()) : Status();
  };
  EXPECT_TRUE(SameBits(AgreedResult(Train(t)).weights, reference.weights));
  t.after_step = {};
  t.resume_from = dir.path();
  const Trained resumed = AgreedResult(Train(t));
  EXPECT_TRUE(SameBits(resumed.weights, reference.weights));
  EXPECT_TRUE(SameBits(resumed.replicas, reference.replicas));
}

INSTANTIATE_TEST_SUITE_P(Drawn, Combinations, testing::Range(0, 60));

}  // namespace
}  // namespace zpp::test
