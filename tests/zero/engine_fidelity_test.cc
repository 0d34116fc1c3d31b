// What compression may do to training, by what arrives: sums are conserved, a bad batch or an
// overflow leaves no trace, rows without a gradient stay as they are, bits follow the bound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <string>

#include "tests/zero/engine_world.h"
#include "zero/engine.h"

namespace zpp::test {
namespace {

// The loss scale that the next gradient must carry; ranks are threads.
thread_local double loss_scale = 1;

// N(0,1), of its own for every rank, step and parameter, and something all of them share.
std::vector<float> NormalGradient(size_t elems, int rank, int64_t step, int param) {
  std::mt19937 own(static_cast<uint32_t>(rank * 7919 + step * 104729 + param * 31 + 1));
  std::mt19937 shared(static_cast<uint32_t>(param));
  std::normal_distribution<float> normal;
  std::vector<float> values(elems);
  for (float& value : values) value = normal(own) + 0.5f * normal(shared);
  return values;
}

// Two matrices and a bias; gradients are NormalGradient() unless `spoil` is replaced.
Training Base(int stage, int nodes) {
  Training t{.config = PlainConfig(stage),
             .params = {{.name = "w0", .shape = {64, 256}, .unit = 0},
                        {.name = "b0", .shape = {64}, .unit = 0},
                        {.name = "w1", .shape = {48, 128}, .unit = 1}}};
  t.config.quantized_gradients = true;
  t.config.zero_pp.enabled = true;
  t.config.reduce_bucket_elems = 6000;
  t.world = 4;
  t.nodes = nodes;
  t.spoil = [](int rank, int64_t step, int, int param, std::vector<float>& grad) {
    grad = NormalGradient(grad.size(), rank, step, param);
  };
  return t;
}

// Weights are minus the sum of what was applied.
void UseSums(Training& t) {
  t.config.optimizer = OptimizerType::kSgd;
  t.config.sgd = {.lr = 1};
  t.config.gradient_clipping = 0;
}

double Difference(const Trained& a, const Trained& b) {
  double diff = 0, norm = 0;
  for (size_t p = 0; p < a.weights.size(); ++p) {
    for (size_t i = 0; i < a.weights[p].size(); ++i) {
      const double x = a.weights[p][i], y = b.weights[p][i];
      diff += (x - y) * (x - y);
      norm += y * y;
    }
  }
  return std::sqrt(diff / norm);
}

Trained Uncompressed(Training t) {
  t.config.quantized_gradients = t.config.quantized_weights = false;
  t.options.audit = {};
  return AgreedResult(Train(t));
}

// The records of all buckets together, in the order of steps.
std::vector<nlohmann::json> Overall(const nlohmann::json& audit) {
  std::vector<nlohmann::json> records;
  for (const auto& record : audit.at("records")) {
    if (record.at("bucket") == "all") records.push_back(record);
  }
  return records;
}

struct Feedback {
  int nodes = 2;
  ErrorFeedbackMode mode = ErrorFeedbackMode::kSecondHop;
};
// All that is lost is kept: every hop's loss, or the loss of the only hop.
constexpr Feedback kLossless[] = {{2, ErrorFeedbackMode::kBoth},
                                  {4, ErrorFeedbackMode::kBoth},
                                  {4, ErrorFeedbackMode::kSecondHop}};

TEST(EngineFidelity, ExactStepsDeliverWhatWasLost) {
  for (const int stage : {1, 2, 3}) {
    for (const Feedback& feedback : kLossless) {
      SCOPED_TRACE("stage " + std::to_string(stage) + ", nodes " + std::to_string(feedback.nodes));
      Training t = Base(stage, feedback.nodes);
      UseSums(t);
      t.config.zero_pp.error_feedback = feedback.mode;
      t.config.zero_pp.residual = ResidualType::kF32;
      t.config.zero_pp.quant_period = 6;
      t.steps = 5;
      EXPECT_GT(Difference(AgreedResult(Train(t)), Uncompressed(t)), 1e-3);
      t.steps = 6;
      EXPECT_LT(Difference(AgreedResult(Train(t)), Uncompressed(t)), 2e-6);
    }
  }
}

// The same when a bucket stops being encoded, and over changes of the loss scale.
TEST(EngineFidelity, ResidualsFollowTheLossScale) {
  Training t = Base(2, 4);
  UseSums(t);
  t.config.zero_pp.residual = ResidualType::kF32;
  t.config.zero_pp.quant_period = 9;
  t.config.communication = DType::kF32;
  t.config.fp16.enabled = true;
  t.config.fp16.initial_scale_power = 4;
  t.config.fp16.loss_scale_window = 2;
  t.steps = 9;
  t.spoil = [](int rank, int64_t step, int micro, int param, std::vector<float>& grad) {
    if (step == 0 && micro == 0) loss_scale = 16;
    grad = NormalGradient(grad.size(), rank, step, param);
    for (float& g : grad) g *= static_cast<float>(loss_scale);
  };
  t.after_step = [](ZeroEngine& engine, const StepReport&) -> Status {
    loss_scale = engine.loss_scale();
    return {};
  };
  const Trained got = AgreedResult(Train(t));
  ASSERT_EQ(got.reports.size(), 9u);
  EXPECT_GE(got.reports[8].loss_scale, 128);  // it did change, and more than once
  EXPECT_LT(Difference(got, Uncompressed(t)), 2e-6);
}

TEST(EngineFidelity, MovingTo16BitsDeliversWhatWasLost) {
  Training t = Base(2, 4);
  UseSums(t);
  t.config.zero_pp.residual = ResidualType::kF32;
  t.config.zero_pp.quant_period = 2;
  t.config.zero_pp.max_rel_error = 1e-9;  // int8 at step 2, 16 bits at step 4
  t.config.zero_pp.intra_bits = 16;
  t.steps = 4;
  EXPECT_LT(Difference(AgreedResult(Train(t)), Uncompressed(t)), 2e-6);
  t.steps = 5;  // bf16 on the wire, which loses a little
  EXPECT_LT(Difference(AgreedResult(Train(t)), Uncompressed(t)), 2e-3);
}

// What the audit says of a step, against sums in double of what ranks put in and weights show.
TEST(EngineFidelity, AuditAgreesWithANaiveComparison) {
  Training t = Base(2, 2);
  UseSums(t);
  t.params = {{.name = "w", .shape = {64, 256}}};
  t.steps = 1;
  t.options.audit = {.every = 1, .update_error = true};
  std::vector<float> before;
  {
    Training none = t;
    none.steps = 0;
    before = AgreedResult(Train(none)).weights[0];
  }
  const Trained got = AgreedResult(Train(t));
  std::vector<double> truth(before.size());
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<float> grad = NormalGradient(before.size(), rank, 0, 0);
    for (size_t i = 0; i < truth.size(); ++i) truth[i] += static_cast<double>(grad[i]) / 4;
  }
  double dot = 0, true_sq = 0, received_sq = 0, diff_sq = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double received = static_cast<double>(before[i]) - got.weights[0][i];
    dot += truth[i] * received;
    true_sq += truth[i] * truth[i];
    received_sq += received * received;
    diff_sq += (received - truth[i]) * (received - truth[i]);
  }
  const auto records = Overall(got.audit);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_NEAR(records[0].at("cosine"), dot / std::sqrt(true_sq * received_sq), 1e-6);
  EXPECT_NEAR(records[0].at("true_rel_error"), std::sqrt(diff_sq / true_sq), 1e-5);
  EXPECT_NEAR(records[0].at("sum_error"), std::sqrt(diff_sq / true_sq), 1e-5);
  EXPECT_NEAR(records[0].at("rel_error"), 0.110, 0.01);         // int4 sqrt of N(0,1)
  EXPECT_NEAR(records[0].at("inner_rel_error"), 0.007, 0.001);  // int8
  EXPECT_GT(records[0].at("zeroed_share"), 0);
  EXPECT_GT(records[0].at("update_error"), 0);
}

TEST(EngineFidelity, FreeAuditRecordsExactSteps) {
  for (const auto mode : {ErrorFeedbackMode::kOff, ErrorFeedbackMode::kSecondHop}) {
    Training t = Base(2, 2);
    t.config.quantized_weights = true;
    t.config.zero_pp.error_feedback = mode;
    t.config.zero_pp.quant_period = 3;
    t.steps = 7;
    const auto all = Train(t);
    for (const auto& rank : all) EXPECT_EQ(rank->audit, all[0]->audit);
    const auto records = Overall(AgreedResult(all).audit);
    ASSERT_EQ(records.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(records[i].at("step"), 3 * (static_cast<int>(i) + 1));
      EXPECT_TRUE(records[i].at("exact"));
      EXPECT_NEAR(records[i].at("rel_error"), 0.11, 0.02);
      EXPECT_EQ(records[i].at("drift"), 0);  // replicas were made equal
      EXPECT_GT(records[i].at("weight_rel_error"), 0.05);
      EXPECT_EQ(records[i].contains("accumulated_error"), mode != ErrorFeedbackMode::kOff);
      EXPECT_FALSE(records[i].contains("cosine"));
    }
  }
}

// An audit that looks at every step sees through exact ones: what compression would have done.
TEST(EngineFidelity, AuditOfExactStepsShowsCompression) {
  Training t = Base(2, 2);
  t.config.zero_pp.quant_period = 3;
  t.steps = 6;
  t.options.audit = {.every = 3};
  const auto records = Overall(AgreedResult(Train(t)).audit);
  ASSERT_EQ(records.size(), 2u);
  for (const auto& record : records) {
    EXPECT_LT(record.at("cosine"), 0.9999);
    EXPECT_GT(record.at("cosine"), 0.97);
  }
}

// The step after a bad batch must not be the bad batch's residual.
TEST(EngineFidelity, ABadBatchDoesNotPoisonTheNextStep) {
  for (const int stage : {2, 3}) {
    for (const auto mode : {ErrorFeedbackMode::kSecondHop, ErrorFeedbackMode::kBoth}) {
      for (const ResidualType residual : {ResidualType::kBF16, ResidualType::kInt8}) {
        Training t = Base(stage, 2);
        t.config.zero_pp.error_feedback = mode;
        t.config.zero_pp.residual = residual;
        t.config.gradient_clipping = 100;  // about the norm: half of the steps are clipped
        t.steps = 14;
        t.options.audit = {.every = 1};
        t.spoil = [](int rank, int64_t step, int, int param, std::vector<float>& grad) {
          grad = NormalGradient(grad.size(), rank, step, param);
          for (float& g : grad) g *= rank == 1 && step == 9 ? 1000.0f : 1.0f;
        };
        const Trained got = AgreedResult(Train(t));
        ASSERT_EQ(got.reports.size(), 14u);
        EXPECT_LT(got.reports[9].clip_coefficient, 0.01);
        EXPECT_LT(got.reports[10].grad_norm, 1.2 * got.reports[8].grad_norm);
        const auto records = Overall(got.audit);
        for (size_t step = 8; step < 14; ++step) {
          EXPECT_GE(records[step].at("cosine"), 0.98) << step;
        }
      }
    }
  }
}

// After a skipped step nothing of it is left: neither in the loss scale nor in the residuals.
TEST(EngineFidelity, AnOverflowLeavesNoTrace) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 3e38f}) {
    for (const auto mode : {ErrorFeedbackMode::kSecondHop, ErrorFeedbackMode::kBoth}) {
      Training t = Base(2, 2);
      t.config.quantized_weights = true;
      t.config.zero_pp.error_feedback = mode;
      t.config.fp16.enabled = true;
      t.config.fp16.initial_scale_power = 3;
      t.config.fp16.hysteresis = 1;
      t.steps = 6;
      t.options.audit = {.every = 1};
      t.spoil = [bad](int rank, int64_t step, int, int param, std::vector<float>& grad) {
        grad = NormalGradient(grad.size(), rank, step, param);
        // Finite, but not its sum over two ranks: each would keep a huge residual.
        const bool hit = rank == 2 || (rank == 3 && std::isfinite(bad));
        if (hit && step == 3 && param == 2) grad[77] = bad;
      };
      const Trained got = AgreedResult(Train(t));
      const Trained plain = Uncompressed(t);
      ASSERT_EQ(got.reports.size(), 6u);
      for (size_t step = 0; step < 6; ++step) {
        EXPECT_EQ(got.reports[step].skipped, step == 3);
        EXPECT_EQ(got.reports[step].skipped, plain.reports[step].skipped);
        EXPECT_EQ(got.reports[step].loss_scale, plain.reports[step].loss_scale);
      }
      const auto records = Overall(got.audit);
      ASSERT_EQ(records.size(), 5u);  // a skipped step has nothing to compare
      for (const auto& record : records) EXPECT_GE(record.at("cosine"), 0.98);
    }
  }
}

// Rows 0-9 have a gradient at times, the others never: on no rank, in no step.
TEST(EngineFidelity, RowsThatNeverHadAGradientStayAsTheyAre) {
  for (const int stage : {1, 2, 3}) {
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      for (const Code code : {Code::kLinear, Code::kSqrt}) {
        Training t = Base(stage, 2);
        t.params = {{.name = "embedding", .shape = {64, 48}}};
        t.config.quantized_weights = true;
        t.config.adam.weight_decay = 0;
        t.config.zero_pp.error_feedback = ErrorFeedbackMode::kBoth;
        t.config.zero_pp.rounding = rounding;
        t.config.zero_pp.gradient_code = code;
        t.config.zero_pp.quant_period = 4;
        t.steps = 10;
        t.options.audit = {.every = 1, .update_error = true};
        t.spoil = [](int rank, int64_t step, int, int param, std::vector<float>& grad) {
          const std::vector<float> normal = NormalGradient(grad.size(), rank, step, param);
          for (size_t i = 0; i < grad.size(); ++i) {
            const auto row = static_cast<int>(i / 48);
            grad[i] = row < 10 && (row + rank + step) % 3 == 0 ? normal[i] : 0.0f;
          }
        };
        const Trained got = AgreedResult(Train(t));
        Training none = t;
        none.steps = 0;
        const Trained before = AgreedResult(Train(none));
        for (size_t i = 10 * 48; i < 64 * 48; ++i) {
          ASSERT_EQ(got.weights[0][i], before.weights[0][i]) << i;
          if (stage < 3) {
            ASSERT_EQ(got.replicas[0][i], before.replicas[0][i]) << i;
          }
        }
        EXPECT_NE(got.weights[0][5], before.weights[0][5]);
        for (const auto& record : Overall(got.audit)) EXPECT_EQ(record.at("unseen_rows_hit"), 0);
      }
    }
  }
}

// Up while gradients are too hard for 4 bits, down again when they have become easy; every rank
// alike, each bucket for itself, and whoever looks on.
TEST(EngineFidelity, BitsFollowTheBoundUpAndDown) {
  Training t = Base(2, 2);
  t.config.zero_pp.max_rel_error = 0.05;
  t.config.zero_pp.quant_period = 2;
  t.config.reduce_bucket_elems = 64 * 256;
  t.steps = 16;
  t.spoil = [](int rank, int64_t step, int, int param, std::vector<float>& grad) {
    grad = NormalGradient(grad.size(), rank, step, param);
    const bool easy = param == 2 || step >= 6;
    for (float& g : grad) g = easy ? std::copysign(1.0f, static_cast<float>(step % 2) - 0.5f) : g;
  };
  const auto all = Train(t);
  for (const int64_t every : {1, 3}) {
    Training watched = t;
    watched.options.audit.every = every;
    EXPECT_TRUE(SameBits(AgreedResult(Train(watched)).weights, AgreedResult(all).weights)) << every;
  }
  for (const auto& rank : all) {
    ASSERT_TRUE(rank.ok());
    EXPECT_EQ(rank->audit, all[0]->audit);
  }
  std::map<std::string, std::vector<int>> bits;
  for (const auto& record : all[0]->audit.at("records")) {
    if (record.at("bucket") == "all") continue;
    const std::string name = all[0]->audit.at("buckets").at(record.at("bucket").get<size_t>());
    bits[name].push_back(record.at("bits"));
  }
  // At steps 2, 4, ...: of the steps before. Calm from step 8 on, twice in a row at step 10.
  EXPECT_EQ(bits.at("w0"), (std::vector<int>{4, 8, 8, 8, 8, 4, 4, 4}));
  EXPECT_EQ(bits.at("w1"), (std::vector<int>{4, 4, 4, 4, 4, 4, 4, 4}));
}

// Saved in the middle of a period: the next change of bits rests on steps before the save too.
TEST(EngineFidelity, BitsGoOnFromACheckpoint) {
  std::string dir = testing::TempDir() + "zpp_fidelity_XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  Training t = Base(2, 2);
  t.config.quantized_weights = true;
  t.config.zero_pp.max_rel_error = 0.05;
  t.config.zero_pp.quant_period = 4;
  t.steps = 7;
  const Trained unbroken = AgreedResult(Train(t));
  EXPECT_LT(unbroken.reports[5].gradient_rel_error, 0.05);  // 8 bits since step 4
  t.after_step = [&dir](ZeroEngine& engine, const StepReport& report) {
    return report.step == 3 ? engine.Save(dir) : Status();
  };
  EXPECT_TRUE(SameBits(AgreedResult(Train(t)).weights, unbroken.weights));
  t.after_step = {};
  t.resume_from = dir;
  const Trained resumed = AgreedResult(Train(t));
  std::filesystem::remove_all(dir);
  EXPECT_TRUE(SameBits(resumed.weights, unbroken.weights));
  EXPECT_TRUE(SameBits(resumed.replicas, unbroken.replicas));
  ASSERT_EQ(resumed.audit.at("records").size(), unbroken.audit.at("records").size());
  for (size_t i = 0; i < unbroken.audit.at("records").size(); ++i) {
    EXPECT_EQ(resumed.audit["records"][i]["rel_error"], unbroken.audit["records"][i]["rel_error"]);
  }
}

}  // namespace
}  // namespace zpp::test
