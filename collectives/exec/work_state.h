// A started collective, as the engine sees it.
#pragma once

#include <memory>
#include <optional>

#include "collectives/exec/plan_walker.h"
#include "collectives/exec/prepared_plan.h"
#include "collectives/work.h"
#include "common/deadline.h"
#include "quant/codec.h"

namespace zpp {

class Engine;

class Work::State {
 public:
  void End(Status result) {
    status = std::move(result);
    ended = true;
    engine = nullptr;
    prepared.reset();
  }

  Engine* engine = nullptr;  // null once it has ended
  bool ended = false;
  Status status;

  std::shared_ptr<const PreparedPlan> prepared;
  UserMemory user;
  uint64_t sequence = 0;
  NoiseKey noise;
  ErrorStats* stats = nullptr;
  ErrorStats* last_hop_stats = nullptr;
  ReduceFeedback* feedback = nullptr;
  std::optional<Deadline> deadline;  // the call's own
};

}  // namespace zpp
