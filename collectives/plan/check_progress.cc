// Nobody waits for ever.
#include <algorithm>

#include "collectives/plan/checker.h"

namespace zpp {
namespace {

struct Walker {
  std::vector<Event> events;
  size_t at = 0;
  std::vector<int> started;  // per chunk: stages that have started

  bool done() const { return at == events.size(); }
  bool HasStarted(int chunk, int stage) const {
    return chunk < static_cast<int>(started.size()) && started[static_cast<size_t>(chunk)] > stage;
  }
};

class ProgressChecker {
 public:
  ProgressChecker(std::span<const Plan> plans, std::span<const Pipeline> pipelines)
      : plans_(plans) {
    for (size_t r = 0; r < plans.size(); ++r) {
      const Pipeline& pipeline = pipelines[r % pipelines.size()];
      Walker& walker = walkers_.emplace_back();
      walker.events = Events(static_cast<int>(plans[r].stages.size()), pipeline);
      walker.started.assign(static_cast<size_t>(std::max(0, pipeline.chunks)), 0);
    }
  }

  std::string Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < walkers_.size(); ++r) moved = Advance(r) || moved;
    }
    for (size_t r = 0; r < walkers_.size(); ++r) {
      if (walkers_[r].done()) continue;
      const Event& event = walkers_[r].events[walkers_[r].at];
      return "rank " + std::to_string(r) + " waits for ever at stage " +
             std::to_string(event.stage) + " of chunk " + std::to_string(event.chunk);
    }
    return "";
  }

 private:
  bool Advance(size_t rank) {
    Walker& walker = walkers_[rank];
    bool moved = false;
    for (; !walker.done(); ++walker.at, moved = true) {
      const Event& event = walker.events[walker.at];
      if (event.kind == Event::kStart) {
        walker.started[static_cast<size_t>(event.chunk)] = event.stage + 1;
      }
      if (event.kind == Event::kWait && !PeersHaveStarted(plans_[rank], event)) break;
    }
    return moved;
  }

  bool PeersHaveStarted(const Plan& plan, const Event& event) const {
    const Stage from = plan.Begin(static_cast<size_t>(event.stage));
    const Stage to = plan.stages[static_cast<size_t>(event.stage)];
    auto started = [&](const Message& message) {
      return walkers_[static_cast<size_t>(message.peer)].HasStarted(event.chunk, event.stage);
    };
    return std::all_of(plan.sends.begin() + from.sends_end, plan.sends.begin() + to.sends_end,
                       started) &&
           std::all_of(plan.recvs.begin() + from.recvs_end, plan.recvs.begin() + to.recvs_end,
                       started);
  }

  std::span<const Plan> plans_;
  std::vector<Walker> walkers_;
};

}  // namespace

std::string CheckProgress(std::span<const Plan> plans, std::span<const Pipeline> pipelines) {
  return ProgressChecker(plans, pipelines).Run();
}

}  // namespace zpp
