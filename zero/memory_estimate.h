// What a rank holds, by purpose: the estimate before anything is allocated, and the form in which
// an engine reports what it holds.
//
// With n trainable elements, f frozen ones, c compressed ones and p that stage 3 keeps whole, on D
// ranks with k of them per node; s bytes per element of the compute type; o = n/D elements that a
// rank updates (n in stage 0), each division rounded up:
//
// - weights: stages 0-2 s (n + f); stage 3 s p + s f/D, and s (n - p)/D unless fp32
// - master: 4 o
// - moments: Adam 8 o; SGD 4 o with momentum, else 0
// - gradients: 4 n for the sums; stages 1-3: 4 o for what is reduced, 4 o more when every one of
//   several micro-batches is; 2 n where gradients travel as 16 bits (n - c when there are no exact
//   steps); 4 (c + c/D) per hop with error feedback, for residuals on their way in an exact step
// - gathered: stage 3, with L = n - p + f gathered elements, the largest unit u, the configured
//   max_live, reuse distance R and prefetch P: at most s min(L, max_live + u, 2 u + R/2 + P), for a
//   backward pass that takes the units in the forward pass's opposite order
// - hpZ copy: stage 3, s L/hpz where zero_hpz_partition_size is above 1
// - residuals: 4, 2 or 1 + 1/128 bytes for each of r elements. Several nodes: the second hop has
//   r = c/k, and the first c more when both have feedback and k > 1. One node: r = c. One rank, or
//   nothing encoded: none
// - staging: weight differences of stages 1-2, 4 (b + b/D) with b = c, at most what
//   allgather_bucket_size and one bucket have
//
// States (weights, master, moments, residuals, hpZ copy) are exact up to padding between
// parameters. Gradients and what is gathered are upper bounds: how much is alive at once is decided
// by the link. Not in it: activations, the trainer's own gradients, and the communicator's buffers,
// whose size does not depend on the model.
#pragma once

#include <cstdint>
#include <string>

#include "zero/config.h"
#include "zero/shard_map.h"

namespace zpp {

// Bytes of one rank.
struct MemoryEstimate {
  int64_t weights_bytes = 0;    // of the compute type: the replica, or stage 3's shard of it
  int64_t master_bytes = 0;     // fp32 master weights
  int64_t moments_bytes = 0;    // the optimizer's other states
  int64_t gradients_bytes = 0;  // fp32 sums, what is reduced, and what travels
  int64_t gathered_bytes = 0;   // stage 3: weights gathered for use, prefetched ones included
  int64_t secondary_bytes = 0;  // hpZ's copy inside the node
  int64_t residuals_bytes = 0;  // of error feedback
  int64_t staging_bytes = 0;    // weight differences on their way
  bool offloaded = false;       // master and moments lie in the offload arena

  bool operator==(const MemoryEstimate&) const = default;

  int64_t total_bytes() const;
  // A line per purpose that is not zero, and the total: "master weights       76.3 MiB".
  std::string ToText() const;
};

// Elements of a model's parameters.
struct ModelSize {
  int64_t elems = 0;               // trainable
  int64_t frozen_elems = 0;        // neither gradient nor optimizer state
  int64_t compressed_elems = 0;    // of the trainable ones: those that may be quantized
  int64_t persistent_elems = 0;    // of the trainable ones: those that stage 3 keeps whole
  int64_t largest_unit_elems = 0;  // of what is gathered and freed together

  bool operator==(const ModelSize&) const = default;
};

// Padding between parameters included.
ModelSize ModelSizeOf(const ShardMap& map);

// Where a rank sits: the data-parallel world and the number of its ranks on one node.
struct RankLayout {
  int world = 1;
  int node_ranks = 1;
};

MemoryEstimate EstimateMemory(const ZeroConfig& config, const ModelSize& model,
                              const RankLayout& layout);

}  // namespace zpp
