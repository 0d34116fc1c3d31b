// Into how many chunks a vector is cut, and on which grid. Pure functions of what all ranks know,
// so all choose alike.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/plan/plan.h"
#include "topology/topology.h"

namespace zpp {

// Largest block of any hop; without compression a cache line of the user's type.
int64_t GridElems(std::span<const QuantSpec> hops, const QuantSpec& gather, DType user);

struct ChunkArgs {
  const Partition* parts = nullptr;
  DType dtype = DType::kF32;
  bool compressed = false;
  int64_t parts_per_message = 1;  // in the hop with the longest messages
  int64_t chunk_bytes = 0;  // fp32 bytes of a part per chunk; 0: messages of the fabric's best size
};
// >= 1. No more than the largest part has blocks.
int ChooseChunks(const ChunkArgs& args);

// Parts that travel together in the innermost hop that moves anything.
int64_t PartsPerMessage(const Topology& topology);

}  // namespace zpp
