// What a rank holds, by purpose: the estimate before anything is allocated, and the form in which
// an engine reports what it holds.
#pragma once

#include <cstdint>
#include <string>

#include "zero/config.h"

namespace zpp {

// Bytes of one rank.
struct MemoryEstimate {
  int64_t weights_bytes = 0;    // of the compute type: the replica, or stage 3's shard of it
  int64_t master_bytes = 0;     // fp32 master weights
  int64_t moments_bytes = 0;    // the optimizer's other states
  int64_t gradients_bytes = 0;  // fp32 accumulators
  int64_t gathered_bytes = 0;   // stage 3: weights gathered for use, prefetched ones included
  int64_t secondary_bytes = 0;  // hpZ's copy inside the node
  int64_t residuals_bytes = 0;  // of error feedback
  int64_t staging_bytes = 0;    // what collectives read from and write to
  bool offloaded = false;       // master and moments lie in the offload arena

  int64_t total_bytes() const;
  // One line per purpose that is not zero, and the total.
  std::string ToText() const;
};

// Elements of a model's parameters.
struct ModelSize {
  int64_t elems = 0;             // trainable
  int64_t frozen_elems = 0;      // neither gradient nor optimizer state
  int64_t compressed_elems = 0;  // of the trainable ones: those whose gradients may be quantized
  int64_t persistent_elems = 0;  // below stage 3's persistence threshold: never sharded as weights
  int64_t largest_unit_elems = 0;  // of what is gathered and freed together
};

// Where a rank sits: the data-parallel world and the number of its ranks on one node.
struct RankLayout {
  int world = 1;
  int node_ranks = 1;
};

MemoryEstimate EstimateMemory(const ZeroConfig& config, const ModelSize& model,
                              const RankLayout& layout);

}  // namespace zpp
