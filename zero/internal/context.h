// What every part of one engine is built on, and small helpers over it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "common/deadline.h"
#include "zero/config.h"
#include "zero/parameters.h"
#include "zero/shard_map.h"

namespace zpp::internal {

// Elements [first, first + elems) of a bucket.
struct ElemRange {
  int64_t first = 0;
  int64_t elems = 0;
};

enum class NoiseUse : uint8_t { kGradients, kWeights };

// Lives as long as the engine; its parts keep a pointer to it.
struct EngineContext {
  Communicator* comm = nullptr;
  ZeroConfig config;
  std::vector<ParamSpec> params;
  ShardMap map;
  uint64_t seed = 0;

  const Bucket& bucket(int b) const { return map.buckets[static_cast<size_t>(b)]; }
  const Slab& slab(int a) const { return map.slabs[static_cast<size_t>(a)]; }
  const SlabKind& kind(int b) const { return slab(bucket(b).slab).kind; }
  int num_buckets() const { return static_cast<int>(map.buckets.size()); }
  int num_slabs() const { return static_cast<int>(map.slabs.size()); }

  // What this rank updates of a bucket: all in stage 0, its shard otherwise.
  ElemRange Own(int b) const {
    const Bucket& bucket_b = bucket(b);
    if (config.stage == 0) return {0, bucket_b.elems};
    const auto rank = static_cast<size_t>(comm->rank());
    return {bucket_b.shard_first[rank], bucket_b.shard_elems[rank]};
  }
  Deadline Patience() const { return Deadline::In(comm->options().timeout_s); }

  // Random numbers that depend on the element's place in its slab only, never on buckets.
  // Gradients and weights of one step have numbers of their own.
  NoiseKey Noise(NoiseUse use, int b, int64_t step) const {
    const uint64_t slab_seed =
        seed + 0x9e3779b97f4a7c15u *
                   (static_cast<uint64_t>(bucket(b).slab) * 2 + static_cast<uint64_t>(use) + 1);
    return {.seed = slab_seed,
            .step = static_cast<uint64_t>(step),
            .first_elem = static_cast<uint64_t>(bucket(b).slab_first)};
  }
};

// `piece` cut to `range`; elems <= 0 when they do not meet.
inline ParamPiece Intersect(ParamPiece piece, const ElemRange& range) {
  const int64_t begin = std::max(piece.bucket_first, range.first);
  const int64_t end = std::min(piece.bucket_first + piece.elems, range.first + range.elems);
  piece.param_first += begin - piece.bucket_first;
  piece.bucket_first = begin;
  piece.elems = end - begin;
  return piece;
}

}  // namespace zpp::internal
