#include <poll.h>

#include <algorithm>

#include "collectives/bootstrap/internal/star.h"

namespace zpp::internal {
namespace {

class Hub {
 public:
  Hub(std::vector<Connection> ranks, const Patience& patience, Mailbox& mailbox)
      : ranks_(std::move(ranks)),
        patience_(patience),
        mailbox_(mailbox),
        judge_(static_cast<int>(ranks_.size()), patience, SteadyNow_s()) {}

  void Run() {
    while (!mailbox_.stop_requested()) Turn();
    TakeOwn();
    Deliver();
    for (Connection& rank : ranks_) rank.FinishSending();
    CloseGently(ranks_, 0.25);
  }

 private:
  void Turn() {
    Wait();
    for (size_t rank = 1; rank < ranks_.size(); ++rank) Read(static_cast<int>(rank));
    TakeOwn();
    const double now_s = SteadyNow_s();
    judge_.Handle(0, {FrameType::kHeartbeat, {}}, now_s);
    judge_.Tick(now_s);
    Beat(now_s);
    Deliver();
  }

  void Wait() {
    std::vector<pollfd> waited{{.fd = mailbox_.wake_fd(), .events = POLLIN, .revents = 0}};
    for (const Connection& rank : ranks_) {
      const int events = rank.wants_write() ? POLLIN | POLLOUT : POLLIN;
      waited.push_back({.fd = rank.fd(), .events = static_cast<short>(events), .revents = 0});
    }
    const double left_s = std::clamp(next_beat_s_ - SteadyNow_s(), 0.001, patience_.heartbeat_s);
    ::poll(waited.data(), waited.size(), static_cast<int>(left_s * 1e3) + 1);
  }

  void Read(int rank) {
    Connection& connection = ranks_[static_cast<size_t>(rank)];
    if (!connection.open()) return;
    std::vector<Frame> frames;
    Status status = connection.Receive(&frames);
    for (const Frame& frame : frames) judge_.Handle(rank, frame, SteadyNow_s());
    if (status.ok()) status = connection.Flush();
    if (!status.ok()) Drop(rank, status);
  }

  void Drop(int rank, const Status& why) {
    ranks_[static_cast<size_t>(rank)].Close();
    judge_.Closed(rank, "is gone: " + why.message(), SteadyNow_s());
  }

  void TakeOwn() {
    for (const Frame& frame : mailbox_.TakePosted()) {
      judge_.Handle(0, frame, SteadyNow_s());
      if (frame.type != FrameType::kLeave) continue;
      for (size_t rank = 1; rank < ranks_.size(); ++rank) SendTo(static_cast<int>(rank), frame);
    }
  }

  void Beat(double now_s) {
    if (now_s < next_beat_s_) return;
    next_beat_s_ = now_s + patience_.heartbeat_s;
    for (size_t rank = 1; rank < ranks_.size(); ++rank) {
      // A heartbeat behind unsent bytes would tell nothing.
      if (!ranks_[rank].wants_write()) SendTo(static_cast<int>(rank), {FrameType::kHeartbeat, {}});
    }
  }

  void Deliver() {
    // Sending may lose a rank, which is more to deliver.
    for (auto mail = judge_.TakeMail(); !mail.empty(); mail = judge_.TakeMail()) {
      for (const Judge::Mail& one : mail) SendTo(one.to, one.frame);
    }
  }

  void SendTo(int rank, const Frame& frame) {
    if (rank == 0) return mailbox_.Deliver(frame);
    Connection& connection = ranks_[static_cast<size_t>(rank)];
    if (!connection.open()) return;
    if (const Status status = connection.Send(frame); !status.ok()) Drop(rank, status);
  }

  std::vector<Connection> ranks_;  // [0] is closed: rank 0 is here
  const Patience patience_;
  Mailbox& mailbox_;
  Judge judge_;
  double next_beat_s_ = 0;
};

}  // namespace

void RunHub(std::vector<Connection> ranks, const Patience& patience, Mailbox& mailbox) {
  Hub(std::move(ranks), patience, mailbox).Run();
}

double SteadyNow_s() {
  return std::chrono::duration<double>(Deadline::Clock::now().time_since_epoch()).count();
}

void CloseGently(std::vector<Connection>& connections, double seconds) {
  const Deadline deadline = Deadline::In(seconds);
  while (!deadline.expired()) {
    std::vector<pollfd> waited;
    for (Connection& connection : connections) {
      if (!connection.open()) continue;
      std::vector<Frame> ignored;
      if (!connection.Flush().ok() || !connection.Receive(&ignored).ok()) connection.Close();
      if (connection.open())
        waited.push_back({.fd = connection.fd(), .events = POLLIN, .revents = 0});
    }
    if (waited.empty()) return;
    ::poll(waited.data(), waited.size(), deadline.remaining_ms(20));
  }
}

}  // namespace zpp::internal
