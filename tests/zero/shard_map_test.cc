// Where elements live: every element of every parameter exactly once, every cut on the grid, blocks
// inside rows.
#include "zero/shard_map.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/zero/engine_world.h"

namespace zpp::test {
namespace {

ZeroConfig Compressed(int stage, int64_t bucket_elems) {
  ZeroConfig config = PlainConfig(stage);
  config.reduce_bucket_elems = bucket_elems;
  config.quantized_gradients = config.quantized_weights = true;
  config.zero_pp.enabled = true;
  return config;
}

void CheckMap(const std::vector<ParamSpec>& params, const ShardMap& map) {
  std::vector<int64_t> covered(params.size(), 0);
  for (const Bucket& bucket : map.buckets) {
    const int64_t grid = map.slabs[static_cast<size_t>(bucket.slab)].kind.grid_elems();
    int64_t at = 0;
    for (size_t r = 0; r < bucket.shard_elems.size(); ++r) {
      EXPECT_EQ(bucket.shard_first[r], at);
      EXPECT_EQ(bucket.shard_elems[r] % grid, 0);
      at += bucket.shard_elems[r];
    }
    EXPECT_EQ(at, bucket.elems);
    EXPECT_EQ(bucket.slab_first % grid, 0);
    int64_t end = 0;
    for (const ParamPiece& piece : bucket.pieces) {
      const auto p = static_cast<size_t>(piece.param);
      EXPECT_GE(piece.bucket_first, end);
      EXPECT_EQ(piece.param_first, covered[p]);  // in order, without a gap
      covered[p] += piece.elems;
      end = piece.bucket_first + piece.elems;
      EXPECT_LE(end, bucket.elems);
      EXPECT_EQ(map.places[p].slab, bucket.slab);
      EXPECT_EQ(map.places[p].slab_first + piece.param_first,
                bucket.slab_first + piece.bucket_first);
    }
  }
  for (size_t p = 0; p < params.size(); ++p) {
    EXPECT_EQ(covered[p], params[p].elems()) << params[p].name;
    const SlabKind& kind = map.slabs[static_cast<size_t>(map.places[p].slab)].kind;
    EXPECT_EQ(map.places[p].slab_first % kind.grid_elems(), 0) << params[p].name;
  }
}

TEST(ShardMap, CoversEveryElementOnce) {
  const std::vector<ParamSpec> params = MixedParams();
  for (const int world : {1, 2, 3, 4, 7, 64}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const int64_t bucket : {1, 64, 3000, 1'000'000}) {
        SCOPED_TRACE(std::to_string(world) + " " + std::to_string(stage) + " " +
                     std::to_string(bucket));
        ZeroConfig plain = PlainConfig(stage);
        plain.reduce_bucket_elems = bucket;
        CheckMap(params, MakeShardMap(params, plain, world));
        CheckMap(params, MakeShardMap(params, Compressed(stage, bucket), world));
        ZeroConfig per_param = Compressed(stage, bucket);
        per_param.zero_pp.use_contiguous_buffers = false;
        const ShardMap map = MakeShardMap(params, per_param, world);
        CheckMap(params, map);
        for (const Bucket& b : map.buckets) EXPECT_LE(b.pieces.size(), 1u);
      }
    }
  }
}

TEST(ShardMap, BlocksStayInsideRows) {
  const std::vector<ParamSpec> params = {
      {.name = "row32", .shape = {64, 32}},   {.name = "row96", .shape = {64, 96}},
      {.name = "row100", .shape = {64, 100}}, {.name = "row128", .shape = {8, 2, 8, 8}},
      {.name = "row512", .shape = {64, 512}}, {.name = "row8", .shape = {64, 8}},
      {.name = "bias", .shape = {512}}};
  const ShardMap map = MakeShardMap(params, Compressed(2, 1'000'000), 2);
  const auto kind = [&](size_t p) {
    return map.slabs[static_cast<size_t>(map.places[p].slab)].kind;
  };
  const int32_t int4[] = {32, 32, 64, 128, 128, 32, 0};
  const int32_t int8[] = {32, 32, 64, 128, 256, 32, 0};
  for (size_t p = 0; p < params.size(); ++p) {
    EXPECT_EQ(kind(p).int4_block_elems, int4[p]) << params[p].name;
    EXPECT_EQ(kind(p).int8_block_elems, int8[p]) << params[p].name;
    EXPECT_EQ(kind(p).compressed, p != 6) << params[p].name;
  }
}

TEST(ShardMap, ReducesInTheOrderOfABackwardPass) {
  const std::vector<ParamSpec> params = MixedParams();
  const ShardMap map = MakeShardMap(params, PlainConfig(2), 2);
  int last = static_cast<int>(params.size());
  for (const int b : map.reduce_order) {
    const auto& pieces = map.buckets[static_cast<size_t>(b)].pieces;
    ASSERT_FALSE(pieces.empty());
    EXPECT_LE(pieces.front().param, last);
    last = pieces.front().param;
  }
  EXPECT_EQ(std::set<int>(map.reduce_order.begin(), map.reduce_order.end()).size(),
            map.buckets.size());
}

TEST(ShardMap, SmallParametersOfStage3StayWhole) {
  ZeroConfig config = PlainConfig(3);
  config.persistence_threshold_elems = 96;
  const std::vector<ParamSpec> params = MixedParams();
  const auto persistent = [&](const ShardMap& map) {
    std::set<std::string> names;
    for (size_t p = 0; p < params.size(); ++p) {
      if (map.slabs[static_cast<size_t>(map.places[p].slab)].kind.unit < 0)
        names.insert(params[p].name);
    }
    return names;
  };
  EXPECT_EQ(persistent(MakeShardMap(params, config, 2)),
            (std::set<std::string>{"b1", "none", "scalar", "three"}));
  config.model_persistence_elems = 4;  // what they may sum up to, smallest first
  EXPECT_EQ(persistent(MakeShardMap(params, config, 2)),
            (std::set<std::string>{"none", "scalar", "three"}));
}

TEST(Parameters, RefusesWhatCannotBe) {
  const auto refused = [](std::vector<ParamSpec> params) {
    return CheckParameters(params).code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({{.name = "", .shape = {1}}}));
  EXPECT_TRUE(refused({{.name = "a", .shape = {-1}}}));
  EXPECT_TRUE(refused({{.name = "a", .shape = {1 << 30, 1 << 30}}}));
  EXPECT_TRUE(refused({{.name = "a", .shape = {1}}, {.name = "a", .shape = {2}}}));
  EXPECT_TRUE(refused({{.name = "a", .shape = {1}, .unit = 1}}));
  EXPECT_TRUE(refused({{.name = "a", .shape = {1}, .unit = -1}}));
  EXPECT_TRUE(refused({{.name = "a", .shape = {1}, .dtype = DType::kByte}}));
  EXPECT_TRUE(CheckParameters({}).ok());
  EXPECT_TRUE(CheckParameters(MixedParams()).ok());
}

}  // namespace
}  // namespace zpp::test
