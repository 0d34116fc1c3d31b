// The estimate against figures worked out by hand.
#include "zero/memory_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace zpp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr RankLayout kTwoByTwo = {.world = 4, .node_ranks = 2};

ZeroConfig Stage(int stage, DType compute = DType::kF32) {
  ZeroConfig config;
  config.stage = stage;
  config.compute = compute;
  return config;
}

ZeroConfig Compressed(int stage) {
  ZeroConfig config = Stage(stage, DType::kBF16);
  config.zero_pp.enabled = config.quantized_weights = config.quantized_gradients = true;
  return config;
}

// A million parameters, 100 of them frozen beside it, 900'000 compressed, 1000 persistent.
constexpr ModelSize kModel = {.elems = 1'000'000,
                              .frozen_elems = 100,
                              .compressed_elems = 900'000,
                              .persistent_elems = 1000,
                              .largest_unit_elems = 200'000};

TEST(MemoryEstimate, Stage0HoldsEverythingEverywhere) {
  EXPECT_EQ(EstimateMemory(Stage(0), kModel, kTwoByTwo),
            (MemoryEstimate{.weights_bytes = 4'000'400,
                            .master_bytes = 4'000'000,
                            .moments_bytes = 8'000'000,
                            .gradients_bytes = 4'000'000}));
  // bf16: half the weights, and a copy of the gradients to send.
  EXPECT_EQ(EstimateMemory(Stage(0, DType::kBF16), kModel, kTwoByTwo),
            (MemoryEstimate{.weights_bytes = 2'000'200,
                            .master_bytes = 4'000'000,
                            .moments_bytes = 8'000'000,
                            .gradients_bytes = 6'000'000}));
}

// 12 bytes of optimizer state per parameter, sharded.
TEST(MemoryEstimate, Stages1And2ShardTheOptimizer) {
  for (const int stage : {1, 2}) {
    EXPECT_EQ(EstimateMemory(Stage(stage), kModel, kTwoByTwo),
              (MemoryEstimate{.weights_bytes = 4'000'400,
                              .master_bytes = 1'000'000,
                              .moments_bytes = 2'000'000,
                              .gradients_bytes = 5'000'000}));
  }
  ZeroConfig wide = Stage(2, DType::kF16);
  wide.communication = DType::kF32;
  EXPECT_EQ(EstimateMemory(wide, kModel, kTwoByTwo).gradients_bytes, 5'000'000);
}

TEST(MemoryEstimate, Stage3ShardsTheWeightsToo) {
  // fp32: the master serves as the shard of the weights; 25 frozen ones and 1000 whole ones remain.
  const MemoryEstimate fp32 = EstimateMemory(Stage(3), kModel, kTwoByTwo);
  EXPECT_EQ(fp32.weights_bytes, 4 * (1000 + 25));
  EXPECT_EQ(fp32.master_bytes, 1'000'000);
  EXPECT_EQ(fp32.moments_bytes, 2'000'000);
  EXPECT_EQ(fp32.gathered_bytes, 4 * 999'100);  // everything fits under the limits
  const MemoryEstimate bf16 = EstimateMemory(Stage(3, DType::kBF16), kModel, kTwoByTwo);
  EXPECT_EQ(bf16.weights_bytes, 2 * (1000 + 25 + 249'750));
  EXPECT_EQ(bf16.gathered_bytes, 2 * 999'100);
  EXPECT_EQ(bf16.secondary_bytes, 0);
}

TEST(MemoryEstimate, WhatIsGatheredFollowsTheLimits) {
  ZeroConfig config = Stage(3, DType::kBF16);
  config.max_live_elems = 300'000;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).gathered_bytes, 2 * (300'000 + 200'000));
  config.max_live_elems = INT64_MAX;  // no overflow
  config.max_reuse_distance_elems = 0;
  config.prefetch_bucket_elems = 50'000;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).gathered_bytes, 2 * (400'000 + 50'000));
  config.max_reuse_distance_elems = config.prefetch_bucket_elems = INT64_MAX;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).gathered_bytes, 2 * 999'100);
}

TEST(MemoryEstimate, HpzKeepsACopyPerGroup) {
  ZeroConfig config = Stage(3, DType::kBF16);
  config.hpz_partition_size = 2;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).secondary_bytes, 2 * 499'550);
}

TEST(MemoryEstimate, MomentsOfEachOptimizer) {
  ZeroConfig config = Stage(1);
  config.optimizer = OptimizerType::kSgd;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).moments_bytes, 0);
  config.sgd.momentum = 0.9;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).moments_bytes, 1'000'000);
  config.optimizer = OptimizerType::kAdam;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).moments_bytes, 2'000'000);
}

TEST(MemoryEstimate, ResidualsOfEachMode) {
  const auto bytes = [](ErrorFeedbackMode mode, const RankLayout& layout) {
    ZeroConfig config = Compressed(2);
    config.zero_pp.error_feedback = mode;
    return EstimateMemory(config, kModel, layout).residuals_bytes;
  };
  const auto second = ErrorFeedbackMode::kSecondHop, both = ErrorFeedbackMode::kBoth;
  EXPECT_EQ(bytes(ErrorFeedbackMode::kOff, kTwoByTwo), 0);
  EXPECT_EQ(bytes(second, kTwoByTwo), 2 * 450'000);
  EXPECT_EQ(bytes(both, kTwoByTwo), 2 * (450'000 + 900'000));
  EXPECT_EQ(bytes(second, {.world = 4, .node_ranks = 4}), 2 * 900'000);
  EXPECT_EQ(bytes(both, {.world = 4, .node_ranks = 4}), 2 * 900'000);
  EXPECT_EQ(bytes(both, {.world = 4, .node_ranks = 1}), 2 * 900'000);
  EXPECT_EQ(bytes(both, {.world = 1, .node_ranks = 1}), 0);
  ZeroConfig config = Compressed(2);
  config.zero_pp.residual = ResidualType::kInt8;  // 450'000 = 1757 blocks of 256 and one of 208
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).residuals_bytes, 450'000 + 2 * 1758);
  config.zero_pp.residual = ResidualType::kF32;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).residuals_bytes, 4 * 450'000);
  config.quantized_gradients = false;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).residuals_bytes, 0);
}

TEST(MemoryEstimate, StagingOfDifferences) {
  ZeroConfig config = Compressed(1);
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).staging_bytes, 4 * (900'000 + 225'000));
  config.allgather_bucket_elems = 100'000;
  config.reduce_bucket_elems = 1000;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).staging_bytes, 4 * (100'000 + 25'000));
  config.zero_pp.quant_bits = 16;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).staging_bytes, 0);
  EXPECT_EQ(EstimateMemory(Compressed(3), kModel, kTwoByTwo).staging_bytes, 0);
}

TEST(MemoryEstimate, GradientsThatTravelAs16Bit) {
  ZeroConfig config = Compressed(2);
  config.zero_pp.error_feedback = ErrorFeedbackMode::kOff;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).gradients_bytes, 7'000'000);  // exact steps
  config.zero_pp.quant_period = 0;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).gradients_bytes, 5'200'000);
  config.zero_pp.reduce_every_micro_batch = true;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).gradients_bytes, 5'200'000);
  config.accumulation_steps = 2;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).gradients_bytes, 6'200'000);
}

// In an exact step residuals are reduced beside the gradients, once per hop that keeps some.
TEST(MemoryEstimate, ResidualsOnTheirWay) {
  ZeroConfig config = Compressed(2);
  const int64_t per_hop = 4 * (900'000 + 225'000);
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).gradients_bytes, 7'000'000 + per_hop);
  config.zero_pp.error_feedback = ErrorFeedbackMode::kBoth;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).gradients_bytes, 7'000'000 + 2 * per_hop);
  EXPECT_EQ(EstimateMemory(config, kModel, {.world = 4, .node_ranks = 4}).gradients_bytes,
            7'000'000 + per_hop);
  config.zero_pp.quant_period = 0;
  EXPECT_EQ(EstimateMemory(config, kModel, kTwoByTwo).gradients_bytes, 5'200'000);
}

TEST(MemoryEstimate, NothingAndAlone) {
  for (const int stage : {0, 1, 2, 3}) {
    EXPECT_EQ(EstimateMemory(Stage(stage), ModelSize{}, {.world = 64, .node_ranks = 8}),
              MemoryEstimate{});
    const MemoryEstimate alone = EstimateMemory(Stage(stage), {.elems = 1}, {});
    EXPECT_EQ(alone.master_bytes, 4);
    EXPECT_EQ(alone.moments_bytes, 8);
  }
  // More ranks than elements: a share is at least one.
  EXPECT_EQ(EstimateMemory(Stage(1), {.elems = 3}, {.world = 64, .node_ranks = 8}).master_bytes, 4);
}

TEST(MemoryEstimate, Text) {
  MemoryEstimate estimate{
      .weights_bytes = 512, .master_bytes = 80'000'000, .residuals_bytes = 1536, .offloaded = true};
  EXPECT_EQ(estimate.total_bytes(), 80'002'048);
  EXPECT_EQ(estimate.ToText(),
            "weights                512.0 B\n"
            "master weights          76.3 MiB (offloaded)\n"
            "residuals                1.5 KiB\n"
            "total                   76.3 MiB\n");
  EXPECT_THAT(MemoryEstimate{}.ToText(), HasSubstr("total                    0.0 B"));
  EXPECT_THAT(MemoryEstimate{.moments_bytes = 5}.ToText(), Not(HasSubstr("offloaded")));
}

TEST(ModelSize, FromTheShardMap) {
  ShardMap map;
  map.slabs = {{.kind = {.unit = -1}, .elems = 64},
               {.kind = {.unit = 0, .compressed = true}, .elems = 1000},
               {.kind = {.unit = 0}, .elems = 100},
               {.kind = {.unit = 1, .compressed = true}, .elems = 900},
               {.kind = {.unit = 1, .trainable = false, .compressed = true}, .elems = 500}};
  EXPECT_EQ(ModelSizeOf(map), (ModelSize{.elems = 2064,
                                         .frozen_elems = 500,
                                         .compressed_elems = 1900,
                                         .persistent_elems = 64,
                                         .largest_unit_elems = 1400}));
  EXPECT_EQ(ModelSizeOf(ShardMap{}), ModelSize{});
}

}  // namespace
}  // namespace zpp
