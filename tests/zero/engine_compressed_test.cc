// The engine with compression: how many bytes cross nodes, and what must not depend on buckets,
// chunks, audits or hpZ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/zero/engine_world.h"
#include "zero/compression.h"
#include "zero/engine.h"
#include "zero/exact_sum.h"
#include "zero/internal/step_exchange.h"

namespace zpp::test {
namespace {

ZeroConfig CompressedConfig(int stage) {
  ZeroConfig config = PlainConfig(stage);
  config.quantized_gradients = config.quantized_weights = true;
  config.zero_pp.enabled = true;
  return config;
}

// 2 nodes of 2 ranks, matrices only, in bf16; every unit is gathered twice per step.
Training Matrices(const ZeroConfig& base) {
  Training t{.config = base,
             .params = {{.name = "w0", .shape = {256, 512}, .unit = 0},
                        {.name = "w1", .shape = {512, 512}, .unit = 1},
                        {.name = "w2", .shape = {512, 256}, .unit = 2}}};
  t.world = 4;
  t.nodes = 2;
  t.steps = 3;
  t.config.compute = DType::kBF16;
  t.config.reduce_bucket_elems = 100'000;
  t.config.max_reuse_distance_elems = 0;
  t.config.prefetch_bucket_elems = 200'000;
  return t;
}

// Of one step, all ranks together.
int64_t AcrossNodes(const std::vector<Result<Trained>>& all, size_t step) {
  int64_t bytes = 0;
  for (const auto& rank : all) {
    EXPECT_TRUE(rank.ok()) << rank.status().ToString();
    if (rank.ok()) bytes += rank->reports[step].sent_bytes[1];
  }
  return bytes;
}

// The same from the plans: `visit(comm, map, planned)` adds what one rank sends per tier.
struct Planned {
  Communicator& comm;
  int64_t across = 0;
  void Add(CollectiveKind kind, DType type, int64_t elems, const CallOptions& call) {
    const auto bytes = comm.PlannedBytes(kind, type, elems, call);
    ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
    across += (*bytes)[1];
  }
  // The step's one small message.
  void AddExchange() {
    const int64_t bytes = static_cast<int64_t>(ExactSum::kBytes + 2 * sizeof(ErrorStats));
    Add(CollectiveKind::kAllGather, DType::kByte, bytes * comm.world(), {.noise = {}});
  }
};

int64_t PlannedAcross(const Training& t,
                      const std::function<void(Planned&, const ShardMap&)>& add) {
  std::vector<int64_t> across(static_cast<size_t>(t.world), 0);
  OnRanks(t, [&](Communicator& comm) -> Result<Trained> {
    Planned planned{comm};
    add(planned, MakeShardMap(t.params, t.config, comm.world()));
    planned.AddExchange();
    across[static_cast<size_t>(comm.rank())] = planned.across;
    return Trained{};
  });
  int64_t sum = 0;
  for (const int64_t bytes : across) sum += bytes;
  return sum;
}

CallOptions With(const Bucket& bucket, const CollectivePolicy& policy,
                 ReduceOp op = ReduceOp::kSum) {
  return {.op = op, .policy = policy, .shard_elems = bucket.shard_elems, .noise = {}};
}

TEST(EngineBytes, Stage3SendsAQuarterOfTheUncompressedRunAcrossNodes) {
  Training plain = Matrices(PlainConfig(3));
  Training packed = Matrices(CompressedConfig(3));
  packed.config.hpz_partition_size = 2;
  packed.config.zero_pp.error_feedback = ErrorFeedbackMode::kOff;
  const auto baseline = Train(plain);
  const auto compressed = Train(packed);
  const double ratio = static_cast<double>(AcrossNodes(compressed, 2)) /
                       static_cast<double>(AcrossNodes(baseline, 2));
  EXPECT_LE(ratio, 0.27);
  EXPECT_GE(ratio, 0.25);  // fewer would mean that something was not sent
  const int64_t planned = PlannedAcross(packed, [&](Planned& sum, const ShardMap& map) {
    for (const Bucket& b : map.buckets) {
      const SlabKind& kind = map.slabs[static_cast<size_t>(b.slab)].kind;
      sum.Add(CollectiveKind::kReduceScatter, DType::kF32, b.elems,
              With(b, GradientPolicy(packed.config, kind, 4), ReduceOp::kAvg));
      sum.Add(CollectiveKind::kAllGather, DType::kBF16, b.elems,
              With(b, GatherPolicy(packed.config, kind)));
    }
  });
  EXPECT_EQ(AcrossNodes(compressed, 2), planned);
}

TEST(EngineBytes, Stages1And2SendAQuarterOfTheUncompressedRunAcrossNodes) {
  for (const int stage : {1, 2}) {
    Training plain = Matrices(PlainConfig(stage));
    Training packed = Matrices(CompressedConfig(stage));
    packed.config.zero_pp.error_feedback = ErrorFeedbackMode::kOff;
    const auto baseline = Train(plain);
    const auto compressed = Train(packed);
    const double ratio = static_cast<double>(AcrossNodes(compressed, 2)) /
                         static_cast<double>(AcrossNodes(baseline, 2));
    EXPECT_LE(ratio, 0.28);
    EXPECT_GE(ratio, 0.25);
    const int64_t planned = PlannedAcross(packed, [&](Planned& sum, const ShardMap& map) {
      for (const Bucket& b : map.buckets) {
        const SlabKind& kind = map.slabs[static_cast<size_t>(b.slab)].kind;
        sum.Add(CollectiveKind::kReduceScatter, DType::kF32, b.elems,
                With(b, GradientPolicy(packed.config, kind, 4), ReduceOp::kAvg));
        sum.Add(CollectiveKind::kAllGather, DType::kF32, b.elems,
                With(b, DifferencePolicy(packed.config, kind)));
      }
    });
    EXPECT_EQ(AcrossNodes(compressed, 2), planned);
  }
}

// Error feedback cuts chunks on its own tiles; it must not cost more than their headers.
TEST(EngineBytes, FeedbackSendsHardlyMore) {
  Training t = Matrices(CompressedConfig(2));
  t.config.zero_pp.error_feedback = ErrorFeedbackMode::kOff;
  const auto off = AcrossNodes(Train(t), 2);
  for (const auto mode : {ErrorFeedbackMode::kSecondHop, ErrorFeedbackMode::kBoth}) {
    t.config.zero_pp.error_feedback = mode;
    EXPECT_NEAR(static_cast<double>(AcrossNodes(Train(t), 2)), static_cast<double>(off),
                0.002 * static_cast<double>(off));
  }
}

class Modes : public testing::TestWithParam<std::tuple<int, ErrorFeedbackMode, ResidualType>> {
 protected:
  Training Base(int world, int nodes) const {
    const auto [stage, feedback, residual] = GetParam();
    Training t{.config = CompressedConfig(stage), .params = MixedParams()};
    t.config.zero_pp.error_feedback = feedback;
    t.config.zero_pp.residual = residual;
    t.config.zero_pp.quant_period = 3;
    t.world = world;
    t.nodes = nodes;
    t.steps = 8;
    return t;
  }
};

TEST_P(Modes, ResultsDoNotDependOnBucketsChunksOrAudits) {
  for (const auto& [world, nodes] : {std::pair(4, 2), std::pair(3, 2), std::pair(3, 3)}) {
    Training t = Base(world, nodes);
    t.config.reduce_bucket_elems = 1 << 20;
    const Trained reference = AgreedResult(Train(t));
    ASSERT_EQ(reference.reports.size(), 8u);
    EXPECT_GT(reference.reports[0].gradient_rel_error, 0.001);
    EXPECT_LT(reference.reports[0].gradient_rel_error, 0.3);
    EXPECT_EQ(reference.reports[2].gradient_rel_error, 0);  // exact
    EXPECT_TRUE(reference.reports[2].exact);
    for (const int64_t bucket : {2048, 9000}) {
      t.config.reduce_bucket_elems = bucket;
      t.chunk_bytes = bucket == 2048 ? 8192 : 0;
      EXPECT_TRUE(SameBits(AgreedResult(Train(t)).weights, reference.weights)) << bucket;
    }
    t.config.zero_pp.use_contiguous_buffers = false;
    EXPECT_TRUE(SameBits(AgreedResult(Train(t)).weights, reference.weights));
    t.options.audit.every = 1;
    EXPECT_TRUE(SameBits(AgreedResult(Train(t)).weights, reference.weights));
  }
}

TEST_P(Modes, PeriodOfOneIsTheUncompressedRun) {
  Training t = Base(4, 2);
  t.config.zero_pp.quant_period = 1;
  const Trained exact = AgreedResult(Train(t));
  Training plain{.config = PlainConfig(t.config.stage), .params = MixedParams()};
  plain.world = 4;
  plain.nodes = 2;
  plain.steps = 8;
  const Trained reference = AgreedResult(Train(plain));
  EXPECT_TRUE(SameBits(exact.weights, reference.weights));
  EXPECT_TRUE(SameBits(exact.replicas, reference.replicas));
}

INSTANTIATE_TEST_SUITE_P(
    Feedback, Modes,
    testing::Combine(testing::Values(1, 2, 3),
                     testing::Values(ErrorFeedbackMode::kOff, ErrorFeedbackMode::kSecondHop,
                                     ErrorFeedbackMode::kBoth),
                     testing::Values(ResidualType::kBF16, ResidualType::kInt8)));

// Masters and replicas differ between exact steps, by little, and are equal after one.
TEST(EngineDifferences, DriftStaysSmallAndExactStepsEndIt) {
  Training t{.config = CompressedConfig(2), .params = MixedParams()};
  t.config.zero_pp.quant_period = 10;
  t.world = 4;
  t.nodes = 2;
  const auto drift = [&](int steps) {
    t.steps = steps;
    const Trained got = AgreedResult(Train(t));
    double diff = 0, norm = 0;
    for (size_t p = 0; p < got.weights.size(); ++p) {
      for (size_t i = 0; i < got.weights[p].size(); ++i) {
        diff += std::pow(double{got.weights[p][i]} - double{got.replicas[p][i]}, 2);
        norm += std::pow(double{got.weights[p][i]}, 2);
      }
    }
    return std::sqrt(diff / norm);
  };
  EXPECT_GT(drift(9), 0);
  EXPECT_LT(drift(9), 0.02);
  EXPECT_EQ(drift(10), 0);
  EXPECT_GT(drift(11), 0);
}

TEST(EngineHpz, SecondaryCopiesEqualFreshGathers) {
  for (const int prefetch : {0, 10'000'000}) {
    SCOPED_TRACE(prefetch);
    Training t{.config = CompressedConfig(3), .params = MixedParams()};
    t.config.compute = prefetch > 0 ? DType::kF32 : DType::kBF16;
    t.config.prefetch_bucket_elems = prefetch;
    t.config.max_reuse_distance_elems = 0;
    t.config.accumulation_steps = 2;
    t.world = 4;
    t.nodes = 2;
    const Trained off = AgreedResult(Train(t));
    t.config.hpz_partition_size = 2;
    const Trained on = AgreedResult(Train(t));
    EXPECT_TRUE(SameBits(on.weights, off.weights));
    EXPECT_TRUE(SameBits(on.replicas, off.replicas));
  }
}

TEST(EngineHpz, RefusesASizeThatDoesNotDivideANode) {
  Training t{.config = CompressedConfig(3), .params = MixedParams()};
  t.config.hpz_partition_size = 2;
  t.world = 3;
  t.nodes = 2;
  for (const auto& rank : Train(t)) {
    EXPECT_EQ(rank.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(rank.status().message(), testing::HasSubstr("zero_hpz_partition_size is 2"));
  }
}

TEST(EngineBits, BucketsMoveToMoreBitsAndAllRanksAgree) {
  Training t{.config = CompressedConfig(2), .params = MixedParams()};
  t.config.zero_pp.quant_period = 2;
  t.config.zero_pp.max_rel_error = 0.02;  // int4 cannot, int8 can
  t.world = 4;
  t.nodes = 4;
  t.steps = 9;
  const Trained got = AgreedResult(Train(t));
  EXPECT_GT(got.reports[0].gradient_rel_error, 0.05);
  EXPECT_LT(got.reports[8].gradient_rel_error, 0.02);
  EXPECT_GT(got.reports[8].gradient_rel_error, 0);
  t.config.zero_pp.max_rel_error = 1e-4;  // nor int8
  const Trained sixteen = AgreedResult(Train(t));
  EXPECT_EQ(sixteen.reports[8].gradient_rel_error, 0);
}

TEST(EngineStochastic, RepeatsWithTheSeedAndOnlyWithIt) {
  Training t{.config = CompressedConfig(2), .params = MixedParams()};
  t.config.zero_pp.rounding = Rounding::kStochastic;
  t.world = 4;
  t.nodes = 2;
  const Trained first = AgreedResult(Train(t));
  t.config.reduce_bucket_elems = 2048;
  EXPECT_TRUE(SameBits(AgreedResult(Train(t)).weights, first.weights));
  t.options.seed = 1;
  EXPECT_FALSE(SameBits(AgreedResult(Train(t)).weights, first.weights));
}

TEST(EngineOverflow, CompressedRunSkipsTheSameSteps) {
  for (int stage = 1; stage <= 3; ++stage) {
    for (const float bad : {INFINITY, NAN}) {
      Training t{.config = PlainConfig(stage), .params = MixedParams()};
      t.world = 4;
      t.nodes = 2;
      t.steps = 6;
      t.config.compute = DType::kF16;
      t.config.fp16.enabled = true;
      t.config.fp16.initial_scale_power = 10;
      t.spoil = [bad](int rank, int64_t step, int, int param, std::vector<float>& grad) {
        if (rank == 1 && (step == 1 || step == 4) && param == 7) grad[4000] = bad;
      };
      const Trained plain = AgreedResult(Train(t));
      t.config.quantized_gradients = t.config.quantized_weights = true;
      t.config.zero_pp.enabled = true;
      const Trained packed = AgreedResult(Train(t));
      for (size_t s = 0; s < 6; ++s) {
        EXPECT_EQ(packed.reports[s].skipped, s == 1 || s == 4) << s;
        EXPECT_EQ(packed.reports[s].skipped, plain.reports[s].skipped) << s;
        EXPECT_EQ(packed.reports[s].loss_scale, plain.reports[s].loss_scale) << s;
      }
      for (const auto& w : packed.weights) {
        for (const float x : w) ASSERT_TRUE(std::isfinite(x));
      }
    }
  }
}

}  // namespace
}  // namespace zpp::test
