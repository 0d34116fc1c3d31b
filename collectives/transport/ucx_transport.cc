#include "collectives/transport/ucx_transport.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "collectives/bootstrap/internal/fd.h"
#include "collectives/bootstrap/internal/rank_names.h"
#include "collectives/transport/internal/ucx_core.h"
#include "collectives/transport/internal/ucx_idler.h"
#include "common/log.h"

namespace zpp {
namespace {

using internal::UcxBatch;
using internal::UcxCore;
using internal::UcxIdler;

constexpr int64_t kBestMessage_bytes = 256 << 10;
// By then the control plane has decided, unless its heartbeat is set to more than a third of a
// second.
constexpr double kVerdictTime_s = 2.5;

// A batch that never started, because the transport has failed and awaits the verdict: its Wait or
// Test gets that.
constexpr Ticket kDoomed = ~Ticket{0};

Status NoSuchTicket(Ticket ticket) {
  return InvalidArgument("no batch has ticket " + std::to_string(ticket));
}

class UcxTransport : public Transport {
 public:
  UcxTransport(std::unique_ptr<UcxCore> core, std::shared_ptr<ControlPlane> control,
               double timeout_s)
      : core_(std::move(core)),
        control_(std::move(control)),
        timeout_s_(timeout_s),
        generation_(internal::ForkGeneration()) {}
  ~UcxTransport() override;
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;

  Status ConnectAll(const Topology& topology, Deadline deadline);

  int rank() const override { return control_->rank(); }
  int world() const override { return control_->world(); }
  TransportInfo info() const override { return info_; }

  Result<Ticket> Start(std::span<const SendOp> sends, std::span<const RecvOp> recvs) override;
  Status Wait(Ticket ticket, Deadline deadline) override;
  Result<bool> Test(Ticket ticket) override;
  void Progress() override;
  void Abort(Status why) override;
  Status Shutdown(Deadline deadline) override;

 private:
  struct Failing {
    Status first;
    Deadline until = Deadline::Never();
  };

  Status CheckOps(std::span<const SendOp> sends, std::span<const RecvOp> recvs) const;
  Status CheckPeer(int peer, Tag tag) const;
  // Why this transport must stop, seen from outside UCX: an Abort, or the control plane's verdict.
  std::optional<Status> Stopped();
  // Moves bytes once; not ok when the transport has failed by that.
  Status Turn(double patience_s, bool block);
  // Ends the use of UCX, tells the control plane and (when it may block) waits for its verdict.
  // Without suspects the others are told that this rank gives up.
  Status Fail(Status first, std::vector<int> suspects = {}, double patience_s = 0,
              bool block = false);
  // What a callback noted.
  Status FailNoted(double patience_s, bool block);
  Status FailForGood(Status why);
  Status Settle(bool block);
  Status OnDeadline(const UcxBatch& batch, double patience_s);
  Status Meet(Deadline deadline);
  std::vector<pollfd> WaitedFds() const;
  // How long a Wait of this deadline waits for the verdict: one more deadline.
  double PatienceFor(Deadline deadline);

  std::unique_ptr<UcxCore> core_;  // null once it has failed or was shut down
  const std::shared_ptr<ControlPlane> control_;
  const double timeout_s_;
  const int generation_;
  bool crowded_ = false, closed_ = false;
  TransportInfo info_;
  Status status_;                   // sticky
  std::optional<Failing> failing_;  // failed, but the verdict is not known yet

  Deadline patience_of_ = Deadline::Never();
  double patience_s_ = 0;

  std::atomic<bool> aborted_{false};
  std::mutex abort_mutex_;
  Status abort_why_;
  internal::Bell abort_bell_;
};

UcxTransport::~UcxTransport() {
  if (core_ == nullptr) return;
  if (generation_ != internal::ForkGeneration()) {
    (void)core_.release();  // a forked child must not touch its parent's worker
    return;
  }
  AbandonUcx(std::move(core_));
}

Status UcxTransport::ConnectAll(const Topology& topology, Deadline deadline) {
  ZPP_ASSIGN_OR_RETURN(const auto found, ConnectAllUcx(*core_, *control_, topology, deadline));
  crowded_ = found.crowded;
  std::string ways = found.near.empty() ? "" : "node: " + found.near;
  if (found.windows) ways += "+window";
  if (!found.across.empty()) ways += (ways.empty() ? "across: " : ", across: ") + found.across;
  info_ = {.name = "ucx " + UcxRuntimeVersion() + " (" + ways + ")",
           .best_message_bytes = kBestMessage_bytes};
  Log(LogLevel::kInfo, "transport " + info_.name);
  if (found.near == "tcp") {
    Log(LogLevel::kWarning,
        "ranks of this node talk over tcp: shared memory cannot be used between them");
  }
  return {};
}

Status UcxTransport::CheckPeer(int peer, Tag tag) const {
  if (peer < 0 || peer >= world() || peer == rank()) {
    return InvalidArgument("no message between rank " + std::to_string(rank()) + " and rank " +
                           std::to_string(peer) + " of " + std::to_string(world()));
  }
  if (tag >> internal::kUcxTagBits != 0) {
    return InvalidArgument("tag " + std::to_string(tag) + " does not fit into 48 bits");
  }
  return {};
}

Status UcxTransport::CheckOps(std::span<const SendOp> sends, std::span<const RecvOp> recvs) const {
  for (const SendOp& op : sends) ZPP_RETURN_IF_ERROR(CheckPeer(op.peer, op.tag));
  for (const RecvOp& op : recvs) ZPP_RETURN_IF_ERROR(CheckPeer(op.peer, op.tag));
  return {};
}

Result<Ticket> UcxTransport::Start(std::span<const SendOp> sends, std::span<const RecvOp> recvs) {
  if (failing_) ZPP_RETURN_IF_ERROR(Settle(/*block=*/false));
  if (failing_) return kDoomed;
  if (!status_.ok()) return status_;
  if (Status bad = CheckOps(sends, recvs); !bad.ok()) return Fail(std::move(bad));
  if (auto stopped = Stopped()) return FailForGood(*std::move(stopped));
  UcxBatch& batch = core_->NewBatch(sends.size() + recvs.size());
  core_->Post(batch, sends, recvs, rank());
  // A failure that posting met is reported by the Wait or Test of this ticket.
  return batch.ticket;
}

std::optional<Status> UcxTransport::Stopped() {
  if (aborted_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(abort_mutex_);
    return abort_why_;
  }
  return control_->Verdict();
}

Status UcxTransport::FailForGood(Status why) {
  if (core_ != nullptr) AbandonUcx(std::move(core_));
  failing_.reset();
  status_ = std::move(why);
  return status_;
}

Status UcxTransport::Fail(Status first, std::vector<int> suspects, double patience_s, bool block) {
  Log(LogLevel::kInfo, "transport failed: " + first.ToString());
  AbandonUcx(std::move(core_));
  if (suspects.empty()) {  // no lost peer's doing: the others learn it from us
    control_->Abort(first.message());
    return FailForGood(std::move(first));
  }
  if (auto stopped = Stopped()) return FailForGood(*std::move(stopped));
  for (const int suspect : suspects) control_->Report(suspect, first.message());
  failing_ = Failing{.first = std::move(first), .until = Deadline::In(patience_s)};
  return Settle(block);
}

Status UcxTransport::FailNoted(double patience_s, bool block) {
  Status first = core_->failure;
  if (first.code() != StatusCode::kPeerLost) return Fail(std::move(first));
  const int suspect = first.lost_rank();
  return Fail(std::move(first), {suspect}, patience_s, block);
}

// Ok while the verdict is not known (only when it may not block).
Status UcxTransport::Settle(bool block) {
  auto verdict = block ? control_->AwaitVerdict(failing_->until) : control_->Verdict();
  if (verdict) return FailForGood(*std::move(verdict));
  if (!block && !failing_->until.expired()) return {};
  return FailForGood(failing_->first);
}

Status UcxTransport::OnDeadline(const UcxBatch& batch, double patience_s) {
  std::vector<int> owed;
  for (const bool sends : {false, true}) {
    for (const internal::UcxRequest& request : batch.requests) {
      const bool counts = !request.done && request.is_send == sends;
      if (counts && std::find(owed.begin(), owed.end(), request.peer) == owed.end()) {
        owed.push_back(request.peer);
      }
    }
    if (!owed.empty()) break;  // who owes us data, before who does not take ours
  }
  std::string owing = internal::NameRanks(owed);
  if (owed.size() > 64) owed.resize(64);
  return Fail({StatusCode::kDeadlineExceeded,
               "the time is up while waiting for " + owing + "; " + internal::kMayDiffer},
              std::move(owed), patience_s, /*block=*/true);
}

std::vector<pollfd> UcxTransport::WaitedFds() const {
  std::vector<pollfd> waited;
  for (const int fd : {core_->event_fd, control_->verdict_fd(), abort_bell_.fd()}) {
    waited.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  }
  return waited;
}

// A collective waits many times with one deadline: what counts is how long that was at first.
double UcxTransport::PatienceFor(Deadline deadline) {
  if (deadline.never()) return timeout_s_;
  if (deadline.when() != patience_of_.when()) {
    patience_of_ = deadline;
    patience_s_ = deadline.expired() ? std::min(timeout_s_, kVerdictTime_s)
                                     : std::max(deadline.remaining_s(), 0.05);
  }
  return patience_s_;
}

Status UcxTransport::Wait(Ticket ticket, Deadline deadline) {
  if (failing_) return Settle(/*block=*/true);
  if (!status_.ok()) return status_;
  UcxBatch* batch = core_->Find(ticket);
  if (batch == nullptr) return Fail(NoSuchTicket(ticket));
  const double patience_s = PatienceFor(deadline);
  UcxIdler idler(crowded_);
  std::vector<pollfd> waited;
  for (uint32_t turn = 1; batch->pending > 0; ++turn) {
    const bool moved = ucp_worker_progress(core_->worker) != 0;
    if (!core_->failure.ok()) return FailNoted(patience_s, /*block=*/true);
    if (batch->pending == 0) break;
    bool slept = false;
    if (moved) {
      idler.Reset();
    } else {
      if (waited.empty()) waited = WaitedFds();
      slept = idler.Pause(core_->worker, waited, deadline);
    }
    if (!slept && turn % 64 != 0) continue;
    if (auto stopped = Stopped()) return FailForGood(*std::move(stopped));
    if (deadline.expired()) return OnDeadline(*batch, patience_s);
  }
  if (!core_->failure.ok()) return FailNoted(patience_s, /*block=*/true);
  core_->Release(*batch);
  return {};
}

Status UcxTransport::Turn(double patience_s, bool block) {
  if (auto stopped = Stopped()) return FailForGood(*std::move(stopped));
  // Until nothing moves, but never for long: the caller has other work.
  for (int turn = 0; turn < 256 && ucp_worker_progress(core_->worker) != 0; ++turn) {
  }
  if (core_->failure.ok()) return {};
  return FailNoted(patience_s, block);
}

Result<bool> UcxTransport::Test(Ticket ticket) {
  if (failing_) ZPP_RETURN_IF_ERROR(Settle(/*block=*/false));
  if (failing_) return false;
  if (!status_.ok()) return status_;
  UcxBatch* batch = core_->Find(ticket);
  if (batch == nullptr) return Fail(NoSuchTicket(ticket));
  ZPP_RETURN_IF_ERROR(Turn(timeout_s_, /*block=*/false));
  if (failing_ || batch->pending > 0) return false;
  core_->Release(*batch);
  return true;
}

void UcxTransport::Progress() {
  if (failing_ || !status_.ok()) return;
  // What fails here sticks and is returned by the next call.
  (void)Turn(timeout_s_, /*block=*/false);
}

void UcxTransport::Abort(Status why) {
  {
    const std::lock_guard lock(abort_mutex_);
    if (aborted_) return;
    abort_why_ = std::move(why);
    aborted_.store(true, std::memory_order_release);
  }
  abort_bell_.Ring();
}

// All ranks meet over the control plane, while UCX goes on moving what a peer still waits for.
Status UcxTransport::Meet(Deadline deadline) {
  std::atomic<bool> met{false};
  Status outcome;
  std::thread meeting([&] {
    outcome = control_->AllGather("end", deadline).status();
    met.store(true, std::memory_order_release);
  });
  while (!met.load(std::memory_order_acquire)) {
    if (core_->failure.ok() && ucp_worker_progress(core_->worker) != 0) continue;
    ::poll(nullptr, 0, 1);
  }
  meeting.join();
  return outcome;
}

Status UcxTransport::Shutdown(Deadline deadline) {
  if (closed_) return {};
  if (failing_) return Settle(/*block=*/true);
  if (!status_.ok()) return status_;
  if (auto stopped = Stopped()) return FailForGood(*std::move(stopped));
  if (core_->busy_batches() > 0) return Fail(InvalidArgument("shutdown with batches in flight"));
  if (Status met = Meet(deadline); !met.ok()) return Fail(std::move(met));
  CloseUcx(std::move(core_), Earlier(deadline, Deadline::In(1)));
  control_->Leave();
  closed_ = true;
  status_ = {StatusCode::kAborted, "the transport has been shut down"};
  return {};
}

}  // namespace

Result<std::unique_ptr<Transport>> MakeUcxTransport(std::shared_ptr<ControlPlane> control,
                                                    const Topology& topology,
                                                    const UcxOptions& options, Deadline deadline) {
  const int world = control->world();
  if (world < 2 || world > internal::kUcxMaxWorld || topology.world() != world) {
    return InvalidArgument("no UCX transport for a world of " + std::to_string(world) +
                           " and a topology of " + std::to_string(topology.world()));
  }
  ZPP_ASSIGN_OR_RETURN(auto core, internal::OpenUcx(options.profile, world));
  const bool alone = topology.NodeGroup(control->rank()).size() == 1;
  const bool host = internal::Resolved(options.profile) == UcxProfile::kHost;
  if (options.node_window && host && !alone) core->window = internal::NodeWindow::Create();
  auto transport =
      std::make_unique<UcxTransport>(std::move(core), std::move(control), options.timeout_s);
  ZPP_RETURN_IF_ERROR(transport->ConnectAll(topology, deadline));
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace zpp
