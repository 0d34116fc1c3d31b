#include "collectives/exec/host_driver.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace zpp {
namespace {

// Codec bytes between two looks at the transport, and in one step: tens of microseconds.
constexpr int64_t kWorkPerStep_bytes = 512 * 1024;
// An op with less work than this is not worth waking a thread.
constexpr int64_t kLeastShared_bytes = 128 * 1024;

}  // namespace

void HostDriver::Begin(const PreparedPlan& prepared, const WalkArgs& args,
                       const Statistics& statistics) {
  walker_.Begin(prepared, args);
  statistics_ = statistics;
  hops_ = static_cast<int>(prepared.hop_tiers.size());
  next_task_ = 0;
  tickets_.assign(static_cast<size_t>(prepared.pipeline.lanes), 0);
}

Result<HostDriver::Step> HostDriver::TryStep() { return NextStep(nullptr); }

Result<HostDriver::Step> HostDriver::WaitStep(Deadline deadline) { return NextStep(&deadline); }

Result<HostDriver::Step> HostDriver::NextStep(const Deadline* deadline) {
  if (walker_.done()) return Step::kDone;
  switch (walker_.event().kind) {
    case Event::kBefore:
    case Event::kDuring:
      ZPP_RETURN_IF_ERROR(RunTasks());
      if (next_task_ < walker_.Tasks().size()) return Step::kProgressed;
      break;
    case Event::kStart:
      ZPP_RETURN_IF_ERROR(Start());
      break;
    case Event::kWait:
      ZPP_ASSIGN_OR_RETURN(const bool arrived, Arrived(deadline));
      if (!arrived) return Step::kBlocked;
      break;
  }
  walker_.Next();
  next_task_ = 0;
  return walker_.done() ? Step::kDone : Step::kProgressed;
}

ErrorStats* HostDriver::StatsNow() const {
  const bool last_hop = statistics_.last_hop != nullptr && walker_.event().stage + 1 == hops_;
  return last_hop ? statistics_.last_hop : statistics_.all;
}

size_t HostDriver::EndOfOp(size_t task) const {
  const auto tasks = walker_.Tasks();
  const uint32_t op = tasks[task].op;
  while (task < tasks.size() && tasks[task].op == op) ++task;
  return task;
}

Status HostDriver::RunTasks() {
  const auto tasks = walker_.Tasks();
  if (next_task_ == tasks.size()) return {};
  const size_t end = EndOfOp(next_task_);
  if (env_.pool->threads() > 1 && end - next_task_ > 1) {
    int64_t work_bytes = 0;
    for (size_t i = next_task_; i < end; ++i) work_bytes += tasks[i].work_bytes();
    if (work_bytes >= kLeastShared_bytes) {
      const size_t begin = std::exchange(next_task_, end);
      return RunShared(begin, end);
    }
  }
  return RunInline(end);
}

Status HostDriver::RunInline(size_t end) {
  int64_t work_bytes = 0;
  while (next_task_ < end && work_bytes < kWorkPerStep_bytes) {
    const CodecTask& task = walker_.Tasks()[next_task_++];
    ZPP_RETURN_IF_ERROR(RunTask(task, StatsNow()));
    work_bytes += task.work_bytes();
  }
  if (work_bytes >= kWorkPerStep_bytes) env_.transport->Progress();
  return {};
}

// Statistics are summed in the order of the tasks, so that they too do not depend on the threads.
Status HostDriver::RunShared(size_t begin, size_t end) {
  const auto tasks = walker_.Tasks().subspan(begin, end - begin);
  ErrorStats* const stats = StatsNow();
  task_status_.assign(tasks.size(), {});
  task_stats_.assign(tasks.size(), {});
  const auto run = [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    task_status_[at] = RunTask(tasks[at], stats == nullptr ? nullptr : &task_stats_[at]);
  };
  // By reference: a function that owned it would allocate.
  env_.pool->Run(static_cast<int64_t>(tasks.size()), std::cref(run),
                 [this] { env_.transport->Progress(); });
  for (const Status& status : task_status_) ZPP_RETURN_IF_ERROR(status);
  if (stats != nullptr) {
    for (const ErrorStats& of_task : task_stats_) stats->Merge(of_task);
  }
  return {};
}

Status HostDriver::Start() {
  const PlanWalker::Batch batch = walker_.Messages();
  if (batch.empty()) return {};
  ZPP_ASSIGN_OR_RETURN(tickets_[static_cast<size_t>(walker_.lane())],
                       env_.transport->Start(batch.sends, batch.recvs));
  for (size_t i = 0; i < batch.sends.size(); ++i) {
    env_.traffic->bytes[batch.send_tiers[i]] += static_cast<int64_t>(batch.sends[i].data.size());
  }
  env_.traffic->messages += static_cast<int64_t>(batch.sends.size());
  return {};
}

Result<bool> HostDriver::Arrived(const Deadline* deadline) {
  Ticket& ticket = tickets_[static_cast<size_t>(walker_.lane())];
  if (ticket == 0) return true;
  if (deadline != nullptr) {
    ZPP_RETURN_IF_ERROR(env_.transport->Wait(ticket, *deadline));
  } else {
    ZPP_ASSIGN_OR_RETURN(const bool complete, env_.transport->Test(ticket));
    if (!complete) return false;
  }
  ticket = 0;
  ZPP_RETURN_IF_ERROR(walker_.CheckArrived(env_.check_wire));
  return true;
}

}  // namespace zpp
