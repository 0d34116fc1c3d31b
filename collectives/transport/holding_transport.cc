#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "collectives/transport/internal/holding_transport.h"

namespace zpp {
namespace {
// While sends are held back the inner transport cannot be waited for: its wait would end in
// failure.
constexpr auto kSlice = std::chrono::microseconds(500);
}  // namespace

Result<Ticket> HoldingTransport::Start(std::span<const SendOp> sends,
                                       std::span<const RecvOp> recvs) {
  ZPP_RETURN_IF_ERROR(ReleaseDue());
  const Ticket ticket = next_ticket_++;
  const auto now = Clock::now();
  Batch batch;
  std::vector<SendOp> free;
  std::vector<std::pair<Clock::time_point, Held>> held;
  for (const SendOp& op : sends) {
    if (!IsLegal(op)) {  // the inner transport says what is wrong with it
      free.push_back(op);
      continue;
    }
    const Fate fate = Decide(op, now);
    if (fate.lost) continue;
    const SendOp sent{.peer = op.peer, .tag = op.tag, .data = fate.data};
    if (fate.release <= now) {
      free.push_back(sent);
    } else {
      held.push_back({fate.release, {sent, ticket}});
    }
  }
  ZPP_ASSIGN_OR_RETURN(const Ticket started, inner_->Start(free, recvs));
  batch.inner.push_back(started);
  batch.held = static_cast<int>(held.size());
  batches_.emplace(ticket, std::move(batch));
  held_.insert(held.begin(), held.end());
  return ticket;
}

Status HoldingTransport::Wait(Ticket ticket, Deadline deadline) {
  for (;;) {
    ZPP_RETURN_IF_ERROR(ReleaseDue());
    ZPP_ASSIGN_OR_RETURN(const bool complete, Finish(ticket));
    if (complete) return {};
    if (held_.empty()) {
      std::vector<Ticket>& waiting = batches_.at(ticket).inner;
      ZPP_RETURN_IF_ERROR(inner_->Wait(waiting.back(), deadline));
      waiting.pop_back();
      continue;
    }
    if (deadline.expired()) return Fail(TimeIsUp());
    const auto slice_end = Clock::now() + kSlice;
    std::this_thread::sleep_until(std::min({held_.begin()->first, slice_end, deadline.when()}));
  }
}

Result<bool> HoldingTransport::Test(Ticket ticket) {
  ZPP_RETURN_IF_ERROR(ReleaseDue());
  return Finish(ticket);
}

void HoldingTransport::Progress() {
  // A failure sticks in the inner transport: the next call that can return it does.
  (void)ReleaseDue();
  inner_->Progress();
}

Status HoldingTransport::ReleaseDue() {
  const auto now = Clock::now();
  while (!held_.empty() && held_.begin()->first <= now) {
    const Held due = held_.begin()->second;
    held_.erase(held_.begin());
    ZPP_ASSIGN_OR_RETURN(const Ticket started, inner_->Start({&due.op, 1}, {}));
    Batch& batch = batches_.at(due.ticket);
    batch.inner.push_back(started);
    --batch.held;
  }
  return {};
}

// True when complete; then the ticket is used up.
Result<bool> HoldingTransport::Finish(Ticket ticket) {
  const auto it = batches_.find(ticket);
  if (it == batches_.end()) return inner_->Test(0);  // 0 is never a ticket: it says so, and fails
  std::vector<Ticket>& waiting = it->second.inner;
  inner_->Progress();
  while (!waiting.empty()) {
    ZPP_ASSIGN_OR_RETURN(const bool complete, inner_->Test(waiting.back()));
    if (!complete) return false;
    waiting.pop_back();
  }
  if (it->second.held > 0) {
    // Nothing of this batch is under way that could tell of a failure: ask with an empty one.
    ZPP_ASSIGN_OR_RETURN(const Ticket probe, inner_->Start({}, {}));
    waiting.push_back(probe);
    return false;
  }
  batches_.erase(it);
  return true;
}

Status HoldingTransport::TimeIsUp() const {
  std::set<int> peers;
  for (const auto& [when, held] : held_) peers.insert(held.op.peer);
  std::string names;
  for (int peer : peers) names += (names.empty() ? "" : ", ") + std::to_string(peer);
  return {StatusCode::kDeadlineExceeded, "time is up, messages are still held back for " +
                                             std::string(peers.size() == 1 ? "rank " : "ranks ") +
                                             names};
}

Status HoldingTransport::Fail(Status why) {
  inner_->Abort(why);
  inner_->Progress();  // lets it drop what it knows of the caller's memory
  held_.clear();
  batches_.clear();
  return why;
}

}  // namespace zpp
