// Runs a plan on the host: does its codec work, starts its messages and waits for them, in the
// walker's order.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/exec/plan_walker.h"
#include "collectives/exec/worker_pool.h"
#include "collectives/transport/transport.h"
#include "common/deadline.h"
#include "common/status.h"

namespace zpp {

// Bytes this rank handed to the transport.
struct SentTraffic {
  std::vector<int64_t> bytes;  // per tier
  int64_t messages = 0;
};

class HostDriver {
 public:
  struct Environment {
    Transport* transport = nullptr;
    WorkerPool* pool = nullptr;
    SentTraffic* traffic = nullptr;  // `bytes` has an entry per tier
    bool check_wire = false;
  };
  // Where the errors of encodings are added up; either may be null. `last_hop` is in place of `all`
  // for what a reduction's outermost hop encodes.
  struct Statistics {
    ErrorStats* all = nullptr;
    ErrorStats* last_hop = nullptr;
  };
  enum class Step : uint8_t { kProgressed, kBlocked, kDone };

  explicit HostDriver(const Environment& environment) : env_(environment) {}

  // All that is passed stays borrowed until kDone or an error.
  void Begin(const PreparedPlan& prepared, const WalkArgs& args, const Statistics& statistics);
  // Does a bounded amount of work and never blocks. kBlocked: peers have not sent yet.
  Result<Step> TryStep();
  // The same, but blocks where TryStep would say kBlocked, at most until `deadline`.
  Result<Step> WaitStep(Deadline deadline);

 private:
  Result<Step> NextStep(const Deadline* deadline);
  Status RunTasks();
  Status RunInline(size_t end);
  Status RunShared(size_t begin, size_t end);
  Status Start();
  Result<bool> Arrived(const Deadline* deadline);
  size_t EndOfOp(size_t task) const;
  ErrorStats* StatsNow() const;

  Environment env_;
  PlanWalker walker_;
  Statistics statistics_;
  int hops_ = 0;                     // of a reduction
  size_t next_task_ = 0;             // of the current event
  std::vector<Ticket> tickets_;      // per lane; 0: nothing in flight
  std::vector<Status> task_status_;  // of tasks that ran on the pool
  std::vector<ErrorStats> task_stats_;
};

}  // namespace zpp
