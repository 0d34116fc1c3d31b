// Where every element of every parameter lives: which slab, which bucket, which rank's shard. A
// pure function of parameters, config and world, so all ranks compute the same.
//
//   parameter -> a place in a slab (parameters that are stored, encoded and freed alike)
//   slab     -> cut into buckets, the units of communication
//   bucket    -> cut into one shard per rank
// Every cut lies on the slab's grid, and every parameter starts on it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/dtype.h"
#include "common/status.h"
#include "quant/quant_spec.h"
#include "zero/config.h"
#include "zero/parameters.h"

namespace zpp {

// What parameters of one slab have in common.
struct SlabKind {
  int unit = -1;  // stage 3, gathered and freed: its unit; -1: held by every rank all the time
  DType compute = DType::kF32;
  bool trainable = true;
  bool compressed = false;
  int32_t int8_block_elems = 0;  // largest that stays inside a row, up to the configured one
  int32_t int4_block_elems = 0;

  // Parameters, buckets and shards start on multiples of it.
  int64_t grid_elems() const;
  auto operator<=>(const SlabKind&) const = default;
};

// A stretch of one parameter inside a bucket.
struct ParamPiece {
  int param = 0;
  int64_t param_first = 0;  // elements
  int64_t bucket_first = 0;
  int64_t elems = 0;
};

struct Bucket {
  int slab = 0;
  int64_t slab_first = 0;            // elements
  int64_t elems = 0;                 // padding between parameters included
  std::vector<int64_t> shard_elems;  // per rank
  std::vector<int64_t> shard_first;  // in the bucket, per rank
  std::vector<ParamPiece> pieces;    // by bucket_first
};

struct Slab {
  SlabKind kind;
  int64_t elems = 0;
  int first_bucket = 0, num_buckets = 0;
};

struct ParamPlace {
  int slab = 0;
  int64_t slab_first = 0;
};

struct ShardMap {
  int world = 1;
  std::vector<ParamPlace> places;  // per parameter
  std::vector<Slab> slabs;
  std::vector<Bucket> buckets;  // a slab's buckets follow one another
  // Buckets of trainable slabs in the order in which a backward pass completes them: the order of
  // their reductions, on every rank.
  std::vector<int> reduce_order;
  std::vector<std::vector<int>> slabs_of_unit;  // stage 3: what Gather() fetches

  int64_t ShardElems(int rank) const;  // of all buckets
};

// `params` have passed CheckParameters(). A bucket holds at most about config.reduce_bucket_elems
// elements: parameters are split on the grid.
ShardMap MakeShardMap(std::span<const ParamSpec> params, const ZeroConfig& config, int world);

}  // namespace zpp
