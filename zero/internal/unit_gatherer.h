// Stage 3: units are gathered before use and freed after; what the last step needed next is fetched
// ahead; with hpZ later gathers stay inside the node.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/buffer.h"
#include "common/status.h"
#include "quant/codec.h"
#include "zero/internal/buffer_pool.h"
#include "zero/internal/context.h"
#include "zero/internal/owned_state.h"

namespace zpp::internal {

class UnitGatherer {
 public:
  // Collective when hpZ is on: groups are split from the communicator.
  static Result<UnitGatherer> Create(const EngineContext* context, const OwnedState* owned);

  // Gathers of this step: exact ones are not compressed.
  void BeginStep(int64_t step, bool exact);
  Status Gather(int unit);
  Status Release(int unit);
  Status Poll();
  // Waits for all gathers that were started.
  Status Drain();
  // kInvalidArgument while a unit is in use.
  Status CheckReleased() const;
  // The weights have changed: everything gathered is stale, the secondary copies too.
  Status Invalidate();

  // Data null while the slab's unit is not gathered.
  Vec slab(int a) const;
  // What this rank encoded since the last call.
  ErrorStats TakeStats();
  // Bytes it sent inside the hpZ groups, per tier, since it was made.
  std::vector<int64_t> secondary_bytes_sent() const;

  int64_t gathered_bytes() const { return pool_.allocated_bytes(); }
  int64_t secondary_bytes() const;

 private:
  enum class State : uint8_t { kAbsent, kInFlight, kLive };
  struct Unit {
    State state = State::kAbsent;
    int users = 0;
    int64_t elems = 0;
    std::vector<Work> works;
  };
  // A rank's part of the secondary copy of one slab, valid for one generation of the weights.
  struct Secondary {
    Buffer data;
    std::vector<int64_t> shard_elems;  // per rank of the hpZ group
    int64_t first = 0;                 // of the own part
    int64_t generation = -1;
  };

  Status CreateSecondaries();
  Status Start(int unit);
  Status StartSlab(Unit& unit, int a);
  Status Finish(int unit);
  Status KeepSecondary(int a);
  Status Prefetch();
  Status Free(int unit);
  bool KeepForReuse(int unit) const;
  Unit& at(int unit) { return units_[static_cast<size_t>(unit)]; }

  const EngineContext* context_ = nullptr;
  const OwnedState* owned_ = nullptr;
  std::shared_ptr<Communicator> group_;  // hpZ; null without
  std::vector<Unit> units_;
  std::vector<Buffer> data_;  // per slab
  std::vector<Secondary> secondary_;
  BufferPool pool_;
  ErrorStats stats_;
  int64_t generation_ = 0;
  int64_t live_elems_ = 0;
  int64_t step_ = 1;
  bool exact_ = false;
  // The units in the order of the last step's calls of Gather(), and where this step is in it.
  std::vector<int> trace_, recording_;
  size_t position_ = 0;
  bool follows_trace_ = false;
};

}  // namespace zpp::internal
