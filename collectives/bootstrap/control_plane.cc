#include "collectives/bootstrap/control_plane.h"

#include <pthread.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <thread>
#include <utility>

#include "collectives/bootstrap/internal/hello.h"
#include "collectives/bootstrap/internal/mailbox.h"
#include "collectives/bootstrap/internal/socket.h"
#include "collectives/bootstrap/internal/star.h"
#include "common/env.h"

namespace zpp {
namespace {

using internal::Frame;
using internal::FrameType;

// The thread takes no signals: they belong to the application's threads.
template <typename Body>
std::thread StartQuietThread(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

// What the thread and its owner share; a forked child leaves it alone.
struct Shared {
  internal::Mailbox mailbox;
  std::thread thread;
};

class StarControlPlane : public ControlPlane {
 public:
  StarControlPlane(int rank, int world)
      : rank_(rank), world_(world), generation_(internal::ForkGeneration()), shared_(new Shared) {}

  ~StarControlPlane() override {
    // In a forked child the thread does not exist: there is nothing to stop and nobody to tell.
    if (generation_ != internal::ForkGeneration()) {
      (void)shared_.release();
      return;
    }
    shared_->mailbox.RequestStop();
    if (shared_->thread.joinable()) shared_->thread.join();
  }
  StarControlPlane(const StarControlPlane&) = delete;
  StarControlPlane& operator=(const StarControlPlane&) = delete;

  template <typename Body>
  void Run(Body body) {
    shared_->thread = StartQuietThread(
        [body = std::move(body), mailbox = &shared_->mailbox]() mutable { body(*mailbox); });
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }

  Result<std::vector<std::string>> AllGather(const std::string& mine, Deadline deadline) override {
    constexpr size_t kMost_bytes = size_t{1} << 20;
    if (mine.size() > kMost_bytes) {
      return InvalidArgument("a control exchange takes at most 1 MiB per rank, not " +
                             std::to_string(mine.size()) + " bytes");
    }
    const std::lock_guard lock(gather_mutex_);
    const uint32_t sequence = ++gather_sequence_;
    const internal::GatherBody body{
        .sequence = sequence, .patience_ms = internal::PatienceMs(deadline), .blob = mine};
    shared_->mailbox.Post({FrameType::kGather, body.Pack()});
    return shared_->mailbox.AwaitGathered(sequence, world_, deadline);
  }

  std::optional<Status> Verdict() override { return shared_->mailbox.verdict(); }
  int verdict_fd() const override { return shared_->mailbox.verdict_fd(); }

  void Abort(const std::string& why) override { shared_->mailbox.Post({FrameType::kAbort, why}); }

  void Report(int suspect, const std::string& why) override {
    const internal::ReportBody body{.suspect = suspect, .why = why};
    shared_->mailbox.Post({FrameType::kReport, body.Pack()});
  }

  std::optional<Status> AwaitVerdict(Deadline deadline) override {
    return shared_->mailbox.AwaitVerdict(deadline);
  }

  void Leave() override {
    if (!left_.exchange(true)) shared_->mailbox.Post({FrameType::kLeave, {}});
  }

 private:
  const int rank_, world_, generation_;
  std::unique_ptr<Shared> shared_;
  std::mutex gather_mutex_;
  uint32_t gather_sequence_ = 0;
  std::atomic<bool> left_{false};
};

}  // namespace

Result<ControlOptions> ControlOptionsFromEnv(double timeout_s) {
  ZPP_ASSIGN_OR_RETURN(const double heartbeat_s, GetEnvNumber(EnvVar::kHeartbeat, 0.01, 60));
  return ControlOptions{.heartbeat_s = heartbeat_s, .timeout_s = timeout_s};
}

Result<std::shared_ptr<ControlPlane>> JoinControlPlane(RendezvousSpec spec,
                                                       const ControlOptions& options,
                                                       Deadline deadline) {
  if (spec.world < 2 || spec.rank < 0 || spec.rank >= spec.world) {
    return InvalidArgument("no control plane for rank " + std::to_string(spec.rank) +
                           " of a world of " + std::to_string(spec.world));
  }
  const auto patience = internal::Patience::Of(options.heartbeat_s, options.timeout_s);
  auto plane = std::make_shared<StarControlPlane>(spec.rank, spec.world);
  if (spec.rank == 0) {
    ZPP_ASSIGN_OR_RETURN(auto ranks, internal::AssembleRanks(std::move(spec), deadline));
    for (auto& rank : ranks) internal::TuneSocket(rank.fd(), patience.silent_s);
    plane->Run([ranks = std::move(ranks), patience](internal::Mailbox& mailbox) mutable {
      internal::RunHub(std::move(ranks), patience, mailbox);
    });
  } else {
    ZPP_ASSIGN_OR_RETURN(auto hub, internal::JoinHub(spec, deadline));
    internal::TuneSocket(hub.fd(), patience.silent_s);
    plane->Run([hub = std::move(hub), patience](internal::Mailbox& mailbox) mutable {
      internal::RunMember(std::move(hub), patience, mailbox);
    });
  }
  return std::shared_ptr<ControlPlane>(std::move(plane));
}

}  // namespace zpp
