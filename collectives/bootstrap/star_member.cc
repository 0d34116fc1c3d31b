#include <poll.h>

#include <algorithm>

#include "collectives/bootstrap/internal/star.h"

namespace zpp::internal {
namespace {

class Member {
 public:
  Member(Connection hub, const Patience& patience, Mailbox& mailbox)
      : hub_(std::move(hub)), patience_(patience), mailbox_(mailbox), heard_s_(SteadyNow_s()) {
    last_turn_s_ = heard_s_;
  }

  void Run() {
    while (!mailbox_.stop_requested()) Turn();
    TakeOwn();
    hub_.FinishSending();
    std::vector<Connection> one;
    one.push_back(std::move(hub_));
    CloseGently(one, 0.25);
  }

 private:
  void Turn() {
    Wait();
    const double now_s = SteadyNow_s();
    Forgive(now_s);
    Read(now_s);
    TakeOwn();
    CheckSilence(now_s);
    if (now_s < next_beat_s_) return;
    next_beat_s_ = now_s + patience_.heartbeat_s;
    if (!hub_.wants_write()) Send({FrameType::kHeartbeat, {}});
  }

  void Wait() {
    const int events = hub_.wants_write() ? POLLIN | POLLOUT : POLLIN;
    pollfd waited[] = {{.fd = mailbox_.wake_fd(), .events = POLLIN, .revents = 0},
                       {.fd = hub_.fd(), .events = static_cast<short>(events), .revents = 0}};
    const double left_s = std::clamp(next_beat_s_ - SteadyNow_s(), 0.001, patience_.heartbeat_s);
    ::poll(waited, 2, static_cast<int>(left_s * 1e3) + 1);
  }

  // When this process itself was stopped or starved, the silence was ours.
  void Forgive(double now_s) {
    const double gap_s = now_s - last_turn_s_;
    if (gap_s > std::max(2 * patience_.heartbeat_s, 0.25 * patience_.suspect_s)) {
      heard_s_ = std::min(now_s, heard_s_ + gap_s);
    }
    last_turn_s_ = now_s;
  }

  void Read(double now_s) {
    if (!hub_.open()) return;
    std::vector<Frame> frames;
    Status status = hub_.Receive(&frames);
    if (!frames.empty()) heard_s_ = now_s;
    for (const Frame& frame : frames) {
      if (frame.type == FrameType::kLeave) hub_left_ = true;
      if (frame.type == FrameType::kGathered || frame.type == FrameType::kGatherFailed) {
        asked_ = false;
      }
      mailbox_.Deliver(frame);
    }
    if (status.ok()) status = hub_.Flush();
    if (!status.ok()) Lost(status);
  }

  void Lost(const Status& why) {
    hub_.Close();
    if (!hub_left_ && !left_) LoseHub("is gone: " + why.message());
    if (stuck_ || asked_) LoseHub("has left");  // somebody waits for an answer
  }

  void LoseHub(const std::string& why) {
    mailbox_.SetVerdict(Status::PeerLost(0, "rank 0 " + why));
  }

  void TakeOwn() {
    for (const Frame& frame : mailbox_.TakePosted()) {
      if (frame.type == FrameType::kLeave) left_ = true;
      if (frame.type == FrameType::kReport) stuck_ = true;
      if (frame.type == FrameType::kGather) asked_ = true;
      const bool needs_answer =
          frame.type == FrameType::kReport || frame.type == FrameType::kGather;
      if (!hub_.open() && needs_answer) LoseHub("has left");
      Send(frame);
    }
  }

  void Send(const Frame& frame) {
    if (!hub_.open()) return;
    if (const Status status = hub_.Send(frame); !status.ok()) Lost(status);
  }

  void CheckSilence(double now_s) {
    if (!hub_.open() || hub_left_) return;
    const double limit_s = stuck_ ? patience_.suspect_s : patience_.silent_s;
    if (now_s - heard_s_ >= limit_s) LoseHub("has been silent");
  }

  Connection hub_;
  const Patience patience_;
  Mailbox& mailbox_;
  double heard_s_ = 0, last_turn_s_ = 0, next_beat_s_ = 0;
  bool hub_left_ = false, left_ = false, stuck_ = false, asked_ = false;
};

}  // namespace

void RunMember(Connection hub, const Patience& patience, Mailbox& mailbox) {
  Member(std::move(hub), patience, mailbox).Run();
}

}  // namespace zpp::internal
