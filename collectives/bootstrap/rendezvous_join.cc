// The ranks' side of the rendezvous.
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "collectives/bootstrap/internal/hello.h"
#include "collectives/bootstrap/internal/socket.h"
#include "collectives/bootstrap/rendezvous.h"

namespace zpp::internal {
namespace {

// Rank 0 says who is missing when our patience ends; it may be late by this much.
constexpr double kGrace_s = 1.0;
// A port where nobody says "noted" within this time is not rank 0's. Twice as long in every round,
// so that a stranger on the first port costs little and a slow rank 0 is found all the same.
constexpr double kFirstAckPatience_s = 0.4;
constexpr double kLastAckPatience_s = 5.0;

// The next frame, or why there is none.
Result<Frame> NextFrame(Connection& hub, std::vector<Frame>& queue, Deadline deadline) {
  for (;;) {
    if (!queue.empty()) {
      Frame first = std::move(queue.front());
      queue.erase(queue.begin());
      return first;
    }
    if (deadline.expired()) return Status(StatusCode::kDeadlineExceeded, "no answer");
    pollfd waited{.fd = hub.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&waited, 1, deadline.remaining_ms(1000)) <= 0) continue;
    const Status status = hub.Receive(&queue);
    if (!status.ok() && queue.empty()) return status;
  }
}

// kUnavailable: try again, elsewhere or later. Any other error is final.
Result<Connection> JoinOnce(const RendezvousSpec& spec, const HostPort& where, double patience_s,
                            Deadline deadline) {
  ZPP_ASSIGN_OR_RETURN(Fd fd, Connect(where, Earlier(deadline, Deadline::In(kLastAckPatience_s))));
  TuneSocket(fd.get(), 30);
  Connection hub(std::move(fd), kMaxRankFrame_bytes);
  const Hello hello{
      .job = spec.job, .world = spec.world, .rank = spec.rank, .patience_ms = PatienceMs(deadline)};
  ZPP_RETURN_IF_ERROR(hub.Send({FrameType::kHello, hello.Pack()}));

  const auto elsewhere = [&](const std::string& why) {
    return Status(StatusCode::kUnavailable, ToString(where) + " answers, but " + why);
  };
  std::vector<Frame> queue;
  auto frame = NextFrame(hub, queue, Earlier(deadline, Deadline::In(patience_s)));
  if (!frame.ok()) return elsewhere(frame.status().message());
  if (frame->type == FrameType::kRefuse) {
    const Status refusal = UnpackStatus(frame->body);
    return refusal.code() == StatusCode::kUnavailable ? elsewhere(refusal.message()) : refusal;
  }
  if (frame->type != FrameType::kAck) return elsewhere("it is not rank 0 of this job");

  const Deadline last =
      deadline.never() ? deadline : Deadline::In(deadline.remaining_s() + kGrace_s);
  frame = NextFrame(hub, queue, last);
  if (!frame.ok() && frame.status().code() == StatusCode::kDeadlineExceeded) {
    return Status(StatusCode::kDeadlineExceeded,
                  "rank 0 at " + ToString(where) + " noted this rank and then fell silent");
  }
  if (!frame.ok()) return elsewhere(frame.status().message());
  if (frame->type == FrameType::kRefuse) return UnpackStatus(frame->body);
  if (frame->type != FrameType::kWelcome) return DataLoss("rank 0 sent no welcome");
  hub.set_max_body_bytes(kMaxRankFrame_bytes * static_cast<size_t>(std::min(spec.world, 512)));
  return hub;
}

}  // namespace

Result<Connection> JoinHub(const RendezvousSpec& spec, Deadline deadline) {
  auto pause = std::chrono::milliseconds(10);
  double patience_s = kFirstAckPatience_s;
  std::string last_word;
  for (;;) {
    for (const uint16_t port : spec.ports) {
      auto hub = JoinOnce(spec, {.host = spec.host, .port = port}, patience_s, deadline);
      if (hub.ok() || hub.status().code() != StatusCode::kUnavailable) return hub;
      if (last_word.empty() || port == spec.ports.front()) last_word = hub.status().message();
      if (deadline.expired()) break;
    }
    if (deadline.remaining_s() < std::chrono::duration<double>(pause).count()) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(500));
    patience_s = std::min(patience_s * 2, kLastAckPatience_s);
  }
  const std::string hint = IsLoopback(spec.host)
                               ? "; this is a loopback address, which ranks on other hosts cannot "
                                 "reach rank 0 by"
                               : "";
  return Status(StatusCode::kDeadlineExceeded, "rank 0 never came: " + last_word + hint);
}

}  // namespace zpp::internal
