// The weights that every rank holds whole all the time: all of them in stages 0 to 2, the small
// ones in stage 3. Replicas of the owners' master weights, equal on all ranks at any time.
#pragma once

#include <cstdint>
#include <vector>

#include "common/buffer.h"
#include "common/status.h"
#include "quant/codec.h"
#include "zero/internal/buffer_pool.h"
#include "zero/internal/context.h"
#include "zero/internal/owned_state.h"

namespace zpp::internal {

class WeightStore {
 public:
  // Zeros. kResourceExhausted.
  static Result<WeightStore> Create(const EngineContext* context);

  // Of the compute type, slab.elems long; data null for slabs that stage 3 gathers.
  Vec slab(int a) const;
  // This rank's own part of a bucket in the replica; elems 0 when it is gathered.
  Vec own(int bucket) const;
  // The same when the optimizer is to write it: not where replicas follow by differences.
  Vec optimizer_output(int bucket, bool exact) const;

  // After an update of the master weights: the others' parts arrive. Exact: uncompressed, so that
  // every replica equals its master. Collective.
  Status Refresh(const OwnedState& owned, int64_t step, bool exact);
  // Of the differences this rank encoded since the last call.
  ErrorStats TakeStats();

  int64_t bytes() const { return static_cast<int64_t>(memory_.size()); }
  int64_t staging_bytes() const { return pool_.allocated_bytes(); }

 private:
  struct Pending {
    int bucket = 0;
    Work work;
    Buffer difference;  // of all ranks' parts, fp32; empty when plain
    Buffer own;         // what this rank gives
  };
  bool Follows(int bucket, bool exact) const;
  Result<Pending> Start(const OwnedState& owned, int bucket, bool exact);
  Result<Pending> StartDifference(const OwnedState& owned, int bucket);
  Status Finish(Pending& pending);

  const EngineContext* context_ = nullptr;
  Buffer memory_;
  std::vector<int64_t> offset_bytes_;  // per slab; -1: not here
  ErrorStats stats_;
  int64_t step_ = 0;  // of the refresh: random numbers
  BufferPool pool_;
};

}  // namespace zpp::internal
