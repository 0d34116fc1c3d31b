// A plan bound to one size: all that does not change between calls of the same shape. Made once,
// cached, shared.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan/plan.h"
#include "common/dtype.h"
#include "common/status.h"
#include "quant/codec.h"

namespace zpp {

struct PreparedPlan {
  Plan plan;
  Partition parts;
  Pipeline pipeline;
  DType dtype = DType::kF32;  // of the caller's buffers
  std::vector<Event> events;  // may name one stage more than the plan has: an empty one
  // One lane, with room for any chunk: slots keep their place from chunk to chunk.
  Arena arena;
  // Where the running offsets of a stage slot's parts begin in a lane's table (parts + 1 each); -1
  // for user slots.
  std::vector<int64_t> table_first;
  int64_t table_size = 0;
  // Mixed into the seed of stochastic rounding, one per stage.
  std::vector<uint64_t> stage_seed;

  // Of a reduction's stages, in order; what is encoded after them is gathered.
  std::vector<int> hop_tiers;
  uint64_t digest = 0;  // CallDigest: part of every tag
  // What residuals must have been made for; 0 unless the call has some.
  uint64_t feedback_shape = 0;

  // Of every op, of every receive of the plan. kStream: it writes to the caller's output, which is
  // too large for the caches, and the plan does not read it again.
  std::vector<StoreHint> op_stores, recv_stores;
  // Of every send. kStream: it reads the caller's vector, which is too large for the caches.
  std::vector<StoreHint> send_stores;

  int64_t lanes_bytes() const { return arena.bytes * pipeline.lanes; }
};

struct PrepareArgs {
  Plan plan;
  Partition parts;
  DType dtype = DType::kF32;
  uint64_t digest = 0;
  uint64_t feedback_shape = 0;
  int chunks = 1;
  const Topology* topology = nullptr;
  bool flat = false;  // the plan knows one hop over all ranks
  // The plan ends in an exchange that is not to be waited for before the next chunks have started:
  // a network must not idle. Through shared memory it costs more cache than it hides. Equal on all
  // ranks.
  bool keep_tail_in_flight = false;
};

// Checks the plan against the limits of tags and that nothing writes the input, lays out the lanes,
// orders the events. kInvalidArgument when the plan is too large for the tags.
Result<PreparedPlan> Prepare(PrepareArgs args);

}  // namespace zpp
