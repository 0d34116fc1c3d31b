// The engine without compression: the same bits in every stage, bucket size and accumulation, and
// those of one rank up to the rounding of sums.
#include "zero/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <tuple>

#include "tests/zero/engine_world.h"

namespace zpp::test {
namespace {

Trained RunPlain(int stage, int world, int nodes, int accumulation, int64_t bucket_elems,
                 DType compute = DType::kF32) {
  Training t{.config = PlainConfig(stage), .params = MixedParams()};
  t.world = world;
  t.nodes = nodes;
  t.config.accumulation_steps = accumulation;
  t.config.reduce_bucket_elems = bucket_elems;
  t.config.compute = compute;
  return AgreedResult(Train(t));
}

double RelativeDifference(const Trained& a, const Trained& b) {
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

class Layouts : public testing::TestWithParam<std::tuple<int, int>> {};

// Stages, buckets: 3 sizes (one grid, some parameters, everything).
TEST_P(Layouts, StagesAndBucketsGiveTheSameBits) {
  const auto [world, nodes] = GetParam();
  for (const int accumulation : {1, 4}) {
    const Trained reference = RunPlain(0, world, nodes, accumulation, 5000);
    ASSERT_EQ(reference.reports.size(), 5u);
    for (int stage = 0; stage <= 3; ++stage) {
      for (const int64_t bucket : {64, 5000, 10'000'000}) {
        SCOPED_TRACE("stage " + std::to_string(stage) + ", bucket " + std::to_string(bucket) +
                     ", accumulation " + std::to_string(accumulation));
        const Trained got = RunPlain(stage, world, nodes, accumulation, bucket);
        EXPECT_TRUE(SameBits(got.weights, reference.weights));
        EXPECT_TRUE(SameBits(got.replicas, reference.replicas));
        for (size_t s = 0; s < got.reports.size(); ++s) {
          EXPECT_EQ(got.reports[s].grad_norm, reference.reports[s].grad_norm) << s;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Layouts,
                         testing::Values(std::tuple(1, 1), std::tuple(2, 1), std::tuple(2, 2),
                                         std::tuple(3, 1), std::tuple(3, 2), std::tuple(4, 1),
                                         std::tuple(4, 2)));

class Types : public testing::TestWithParam<DType> {};

TEST_P(Types, StagesGiveTheSameBits) {
  const Trained reference = RunPlain(0, 4, 2, 2, 5000, GetParam());
  for (int stage = 1; stage <= 3; ++stage) {
    const Trained got = RunPlain(stage, 4, 2, 2, 700, GetParam());
    EXPECT_TRUE(SameBits(got.weights, reference.weights)) << stage;
    EXPECT_TRUE(SameBits(got.replicas, reference.replicas)) << stage;
  }
}

INSTANTIATE_TEST_SUITE_P(Compute, Types, testing::Values(DType::kF32, DType::kF16, DType::kBF16));

// Every rank's gradient is its own, so the mean over worlds differs: with the same gradient on all
// ranks, any world must follow the world of one.
TEST(Engine, AnyWorldFollowsOneRankUpToRounding) {
  const auto run = [](int world, int nodes, int stage) {
    Training t{.config = PlainConfig(stage), .params = MixedParams()};
    t.world = world;
    t.nodes = nodes;
    t.spoil = [](int, int64_t step, int micro, int param, std::vector<float>& grad) {
      for (size_t i = 0; i < grad.size(); ++i) {
        grad[i] = std::sin(static_cast<float>(i) + static_cast<float>(step * 7 + micro + param));
      }
    };
    return AgreedResult(Train(t));
  };
  const Trained one = run(1, 1, 0);
  for (const int world : {2, 3, 4}) {
    for (int stage = 0; stage <= 3; ++stage) {
      EXPECT_LT(RelativeDifference(run(world, world > 2 ? 2 : 1, stage), one), 1e-5);
    }
  }
}

// The mean over ranks and micro-batches, against double arithmetic: one SGD step tells it.
TEST(Engine, AveragesOverRanksAndMicroBatches) {
  for (int stage = 0; stage <= 3; ++stage) {
    Training t{.config = PlainConfig(stage), .params = {{.name = "w", .shape = {5, 7}}}};
    t.config.optimizer = OptimizerType::kSgd;
    t.config.sgd = {.lr = 1.0};
    t.config.gradient_clipping = 0;
    t.config.accumulation_steps = 3;
    t.world = 4;
    t.nodes = 2;
    t.steps = 0;
    const Trained before = AgreedResult(Train(t));
    t.steps = 1;
    t.spoil = [](int rank, int64_t, int micro, int, std::vector<float>& grad) {
      for (size_t i = 0; i < grad.size(); ++i) {
        grad[i] = static_cast<float>((rank + 1) * 100 + micro * 10 + static_cast<int>(i));
      }
    };
    const Trained after = AgreedResult(Train(t));
    for (size_t i = 0; i < 35; ++i) {
      const double mean =
          250 + 10 + static_cast<double>(i);  // of ranks' 100..400 and micros' 0..20
      EXPECT_NEAR(after.weights[0][i], before.weights[0][i] - mean, 1e-3) << stage << " " << i;
    }
  }
}

TEST(Engine, HpzGivesTheSameBits) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    Training t{.config = PlainConfig(3), .params = MixedParams()};
    t.world = 4;
    t.nodes = 2;
    t.config.compute = type;
    t.config.accumulation_steps = 2;
    t.config.max_reuse_distance_elems = 0;
    t.config.prefetch_bucket_elems = 0;
    const Trained off = AgreedResult(Train(t));
    t.config.hpz_partition_size = 2;
    const Trained on = AgreedResult(Train(t));
    EXPECT_TRUE(SameBits(on.weights, off.weights));
    EXPECT_TRUE(SameBits(on.replicas, off.replicas));
    // The backward passes and the second micro-batch stay inside the node.
    const auto& with = on.reports.back().sent_bytes;
    const auto& without = off.reports.back().sent_bytes;
    EXPECT_LT(with[1], without[1]);
    EXPECT_GT(on.memory.secondary_bytes, 0);
  }
}

TEST(Engine, PrefetchAndReuseChangeNoBits) {
  Training t{.config = PlainConfig(3), .params = MixedParams()};
  t.world = 3;
  t.nodes = 3;
  t.config.prefetch_bucket_elems = 0;
  t.config.max_reuse_distance_elems = 0;
  const Trained plain = AgreedResult(Train(t));
  t.config.prefetch_bucket_elems = 1 << 20;
  const Trained prefetched = AgreedResult(Train(t));
  EXPECT_TRUE(SameBits(prefetched.weights, plain.weights));
  EXPECT_EQ(prefetched.reports.back().sent_bytes, plain.reports.back().sent_bytes);
  t.config.max_reuse_distance_elems = 1 << 20;
  const Trained reused = AgreedResult(Train(t));
  EXPECT_TRUE(SameBits(reused.weights, plain.weights));
  EXPECT_LT(reused.reports.back().sent_bytes[1], plain.reports.back().sent_bytes[1]);
}

TEST(Engine, WorldOf64WithTinyParameters) {
  for (int stage = 0; stage <= 3; ++stage) {
    Training t{.config = PlainConfig(stage),
               .params = {{.name = "empty", .shape = {0}},
                          {.name = "one", .shape = {1}},
                          {.name = "three", .shape = {3}},
                          {.name = "last", .shape = {2, 2}, .unit = 1}}};
    t.config.persistence_threshold_elems = stage == 3 ? 1 : 0;
    t.world = 64;
    t.nodes = 8;
    t.steps = 2;
    const Trained got = AgreedResult(Train(t));
    ASSERT_EQ(got.reports.size(), 2u);
    EXPECT_FALSE(got.reports[1].skipped);
    EXPECT_GT(got.reports[1].grad_norm, 0);
  }
}

TEST(Engine, FrozenParametersStayAndCostNoState) {
  for (int stage = 0; stage <= 3; ++stage) {
    Training t{.config = PlainConfig(stage), .params = MixedParams()};
    t.world = 2;
    const Trained all = AgreedResult(Train(t));
    for (ParamSpec& p : t.params) p.trainable = p.unit != 1;
    const Trained some = AgreedResult(Train(t));
    t.steps = 0;
    const Trained start = AgreedResult(Train(t));
    for (size_t p = 0; p < t.params.size(); ++p) {
      EXPECT_EQ(SameBits({some.weights[p]}, {start.weights[p]}),
                !t.params[p].trainable || t.params[p].elems() == 0)
          << t.params[p].name;
    }
    EXPECT_LT(some.memory.moments_bytes, all.memory.moments_bytes);
  }
}

TEST(Engine, MixedComputeTypes) {
  Training t{.config = PlainConfig(0), .params = MixedParams()};
  t.world = 3;
  t.config.compute = DType::kBF16;
  for (size_t p = 0; p < t.params.size(); p += 2) t.params[p].dtype = DType::kF32;
  const Trained reference = AgreedResult(Train(t));
  for (int stage = 1; stage <= 3; ++stage) {
    t.config.stage = stage;
    const Trained got = AgreedResult(Train(t));
    EXPECT_TRUE(SameBits(got.weights, reference.weights)) << stage;
    EXPECT_TRUE(SameBits(got.replicas, reference.replicas)) << stage;
  }
}

TEST(Engine, ParametersWithoutGradientCountAsZero) {
  Training t{.config = PlainConfig(0), .params = MixedParams()};
  t.world = 2;
  t.silent = {1, 4};
  t.config.adam.weight_decay = 0;
  const Trained reference = AgreedResult(Train(t));
  t.steps = 0;
  const Trained start = AgreedResult(Train(t));
  t.steps = 5;
  EXPECT_TRUE(SameBits({reference.weights[1]}, {start.weights[1]}));
  for (int stage = 1; stage <= 3; ++stage) {
    t.config.stage = stage;
    EXPECT_TRUE(SameBits(AgreedResult(Train(t)).weights, reference.weights)) << stage;
  }
}

TEST(Engine, OffloadedStateGivesTheSameBits) {
  Training t{.config = PlainConfig(2), .params = MixedParams()};
  t.world = 2;
  const Trained heap = AgreedResult(Train(t));
  t.config.offload_optimizer.enabled = true;
  t.config.sub_group_elems = 1000;
  const Trained offloaded = AgreedResult(Train(t));
  EXPECT_TRUE(SameBits(offloaded.weights, heap.weights));
  EXPECT_TRUE(offloaded.memory.offloaded);
}

TEST(Engine, ReducingEveryMicroBatchIsCloseToReducingOnce) {
  Training t{.config = PlainConfig(3), .params = MixedParams()};
  t.world = 4;
  t.nodes = 2;
  t.config.accumulation_steps = 3;
  const Trained once = AgreedResult(Train(t));
  t.config.zero_pp.reduce_every_micro_batch = true;
  const Trained each = AgreedResult(Train(t));
  EXPECT_LT(RelativeDifference(each, once), 1e-5);
  EXPECT_GT(each.reports.back().sent_bytes[1], once.reports.back().sent_bytes[1]);
}

TEST(Engine, OverflowIsSkippedAndTheScaleHalves) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      Training t{.config = PlainConfig(stage), .params = MixedParams()};
      t.world = 4;
      t.nodes = 2;
      t.steps = 4;
      t.config.compute = DType::kF16;
      t.config.fp16.enabled = true;
      t.config.fp16.initial_scale_power = 8;
      t.config.fp16.hysteresis = 1;
      t.spoil = [bad](int rank, int64_t step, int, int param, std::vector<float>& grad) {
        if (rank == 3 && step == 1 && param == 6) grad[17] = bad;
      };
      const Trained got = AgreedResult(Train(t));
      ASSERT_EQ(got.reports.size(), 4u);
      EXPECT_EQ(got.reports[0].loss_scale, 256);
      EXPECT_TRUE(got.reports[1].skipped);
      EXPECT_EQ(got.reports[2].loss_scale, 128);
      EXPECT_FALSE(got.reports[2].skipped);
      for (const auto& w : got.weights) {
        for (const float x : w) ASSERT_TRUE(std::isfinite(x));
      }
    }
  }
}

TEST(Engine, TwoEnginesShareACommunicator) {
  Training first{.config = PlainConfig(3), .params = MixedParams()};
  first.world = 2;
  Training second{.config = PlainConfig(1), .params = {{.name = "other", .shape = {70, 64}}}};
  second.world = 2;
  second.steps = 2;
  const Trained first_alone = AgreedResult(Train(first));
  const Trained second_alone = AgreedResult(Train(second));
  std::vector<std::vector<float>> inner[2];
  const Trained together = AgreedResult(OnRanks(first, [&](Communicator& comm) {
    Training outer = first;
    // The second engine's whole training, in the middle of the first one's.
    outer.after_step = [&](ZeroEngine&, const StepReport& report) -> Status {
      if (report.step != 3) return {};
      ZPP_ASSIGN_OR_RETURN(const Trained got, TrainRank(comm, second));
      inner[comm.rank()] = got.weights;
      return {};
    };
    return TrainRank(comm, outer);
  }));
  EXPECT_TRUE(SameBits(together.weights, first_alone.weights));
  for (const auto& weights : inner) EXPECT_TRUE(SameBits(weights, second_alone.weights));
}

}  // namespace
}  // namespace zpp::test
