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
  enum class Step : uint8_t { kProgressed, kBlocked, kDone };

  explicit HostDriver(const Environment& environment) : env_(environment) {}

  // All that is passed stays borrowed until kDone or an error; `stats` may be null.
  void Begin(const PreparedPlan& prepared, const WalkArgs& args, ErrorStats* stats);
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

  Environment env_;
  PlanWalker walker_;
  ErrorStats* stats_ = nullptr;
  size_t next_task_ = 0;             // of the current event
  std::vector<Ticket> tickets_;      // per lane; 0: nothing in flight
  std::vector<Status> task_status_;  // of tasks that ran on the pool
  std::vector<ErrorStats> task_stats_;
};

}  // namespace zpp
