// Rank 0's side of the rendezvous.
#include <poll.h>

#include <algorithm>
#include <list>

#include "collectives/bootstrap/internal/hello.h"
#include "collectives/bootstrap/internal/rank_names.h"
#include "collectives/bootstrap/internal/socket.h"
#include "collectives/bootstrap/rendezvous.h"
#include "common/log.h"

namespace zpp::internal {
namespace {

// A client that has not said who it is: bounded in number and time, so that strangers cannot use
// rank 0 up.
constexpr size_t kMaxStrangers = 128;
constexpr double kStrangerPatience_s = 3.0;
constexpr double kMismatchGrace_s = 1.0;
constexpr size_t kMaxHello_bytes = 256;
constexpr const char* kAnotherJob =
    "it is rank 0 of another job (is ZPP_JOB_ID, or the launcher's job, equal on all ranks?)";

struct Guest {
  Connection connection;
  Deadline deadline = Deadline::Never();
  bool gave_up = false;  // it was here, but its own time was up before that of the others
};

class Assembly {
 public:
  Assembly(int world, uint64_t job)
      : world_(world), job_(job), guests_(static_cast<size_t>(world)) {}

  Result<std::vector<Connection>> Run(int listener, Deadline deadline);

 private:
  void Poll(int listener, Deadline deadline);
  void AcceptAll(int listener);
  // True when the stranger has become a guest or is gone.
  bool Meet(Guest& stranger);
  bool Seat(Guest& stranger, const Hello& hello);
  void ReadGuest(int rank);
  bool Complete();
  Status Late() const;
  void DismissImpatient();
  std::vector<int> Missing() const;
  Status Tell(Status why);
  Status TellMismatch(int listener, Deadline deadline);

  const int world_;
  const uint64_t job_;
  std::list<Guest> strangers_;
  std::vector<Guest> guests_;  // by rank
  Status mismatch_;
};

void Refuse(Connection& connection, const Status& why) {
  (void)connection.Send({FrameType::kRefuse, PackStatus(why)});
  connection.FinishSending();
}

std::vector<int> Assembly::Missing() const {
  std::vector<int> missing;
  for (int rank = 1; rank < world_; ++rank) {
    if (!guests_[static_cast<size_t>(rank)].connection.open()) missing.push_back(rank);
  }
  return missing;
}

Status Assembly::Tell(Status why) {
  for (Guest& guest : guests_) {
    if (guest.connection.open()) Refuse(guest.connection, why);
  }
  return why;
}

void Assembly::AcceptAll(int listener) {
  for (;;) {
    Fd fd = Accept(listener);
    if (!fd.valid()) return;
    TuneSocket(fd.get(), 30);
    if (strangers_.size() >= kMaxStrangers) strangers_.pop_front();
    strangers_.push_back(
        {Connection(std::move(fd), kMaxHello_bytes), Deadline::In(kStrangerPatience_s), false});
  }
}

bool Assembly::Seat(Guest& stranger, const Hello& hello) {
  const std::string name = "rank " + std::to_string(hello.rank);
  if (hello.world != world_ || hello.rank <= 0 || hello.rank >= world_) {
    Status why = {StatusCode::kMismatch, name + " was started for a world of " +
                                             std::to_string(hello.world) +
                                             ", rank 0 for a world of " + std::to_string(world_)};
    if (hello.world == world_) {
      why = {StatusCode::kMismatch, "another process came as " + name + " of " +
                                        std::to_string(world_) + ", which rank 0 is"};
    }
    Refuse(stranger.connection, why);
    if (mismatch_.ok()) mismatch_ = why;
    return true;
  }
  Guest& seat = guests_[static_cast<size_t>(hello.rank)];
  if (seat.connection.open()) {
    Refuse(seat.connection,
           {StatusCode::kMismatch, "another process came as " + name + " after this one"});
    Log(LogLevel::kWarning, name + " came again: its newer process replaces the older one");
  }
  if (!stranger.connection.Send({FrameType::kAck, {}}).ok()) return true;
  seat = {std::move(stranger.connection), AfterPatience(hello.patience_ms), false};
  return true;
}

bool Assembly::Meet(Guest& stranger) {
  std::vector<Frame> frames;
  const Status status = stranger.connection.Receive(&frames);
  if (frames.empty()) return !status.ok() || stranger.deadline.expired();
  Hello hello;
  if (frames.front().type != FrameType::kHello || !Hello::Unpack(frames.front().body, &hello)) {
    Log(LogLevel::kInfo, "a stranger at the rendezvous was sent away");
    return true;
  }
  if (hello.job != job_) {
    Log(LogLevel::kInfo, "a rank of another job was sent away from the rendezvous");
    // Not final: his own rank 0 may listen at the next port, or here later.
    Refuse(stranger.connection, {StatusCode::kUnavailable, kAnotherJob});
    return true;
  }
  return Seat(stranger, hello);
}

void Assembly::ReadGuest(int rank) {
  Connection& guest = guests_[static_cast<size_t>(rank)].connection;
  std::vector<Frame> frames;
  // Nothing is due from a guest now: whatever else than silence comes, the seat is free again.
  if (!guest.Receive(&frames).ok() || !frames.empty()) guest.Close();
}

// All are here, and none has given up between our hearing of him and now.
bool Assembly::Complete() {
  if (!Missing().empty()) return false;
  for (int rank = 1; rank < world_; ++rank) ReadGuest(rank);
  return Missing().empty();
}

Status Assembly::Late() const {
  std::vector<int> never, gave_up;
  for (const int rank : Missing()) {
    (guests_[static_cast<size_t>(rank)].gave_up ? gave_up : never).push_back(rank);
  }
  if (!never.empty()) return {StatusCode::kDeadlineExceeded, NameRanks(never) + " never came"};
  return {StatusCode::kDeadlineExceeded, NameRanks(gave_up) + " did not wait long enough"};
}

void Assembly::DismissImpatient() {
  const Status late = Late();
  for (Guest& guest : guests_) {
    if (!guest.connection.open() || !guest.deadline.expired()) continue;
    Refuse(guest.connection, late);
    guest.connection.Close();
    guest.gave_up = true;
  }
}

void Assembly::Poll(int listener, Deadline deadline) {
  std::vector<pollfd> waited{{.fd = listener, .events = POLLIN, .revents = 0}};
  for (const Guest& stranger : strangers_) {
    waited.push_back({.fd = stranger.connection.fd(), .events = POLLIN, .revents = 0});
  }
  for (const Guest& guest : guests_) {
    waited.push_back({.fd = guest.connection.fd(), .events = POLLIN, .revents = 0});
  }
  ::poll(waited.data(), waited.size(), deadline.remaining_ms(50));
  for (size_t rank = 0; rank < guests_.size(); ++rank) {
    const bool speaks = waited[1 + strangers_.size() + rank].revents != 0;
    if (speaks && guests_[rank].connection.open()) ReadGuest(static_cast<int>(rank));
  }
  strangers_.remove_if([this](Guest& stranger) { return Meet(stranger); });
  AcceptAll(listener);
}

// Ranks are started at about the same time: who comes a moment later must hear why, too, instead of
// looking for a rank 0 that is gone until his time is up.
Status Assembly::TellMismatch(int listener, Deadline deadline) {
  const Deadline grace = Deadline::In(std::min(kMismatchGrace_s, deadline.remaining_s()));
  while (!grace.expired() && !Missing().empty()) Poll(listener, grace);
  return Tell(mismatch_);
}

Result<std::vector<Connection>> Assembly::Run(int listener, Deadline deadline) {
  while (!Complete()) {
    Poll(listener, deadline);
    if (!mismatch_.ok()) return TellMismatch(listener, deadline);
    DismissImpatient();
    if (deadline.expired() && !Missing().empty()) {
      return Tell(Late());
    }
  }
  std::vector<Connection> ranks;
  for (Guest& guest : guests_) {
    guest.connection.set_max_body_bytes(kMaxRankFrame_bytes);
    ranks.push_back(std::move(guest.connection));
  }
  return ranks;
}

Result<Fd> ListenOnAny(const RendezvousSpec& spec) {
  Status last = InvalidArgument("no port to listen on was given");
  for (const uint16_t port : spec.ports) {
    auto fd = Listen({.host = spec.host, .port = port});
    if (fd.ok()) return fd;
    last = fd.status();
  }
  return last;
}

}  // namespace

Result<std::vector<Connection>> AssembleRanks(RendezvousSpec spec, Deadline deadline) {
  Fd listener = std::move(spec.listener);
  while (!listener.valid()) {
    auto fd = ListenOnAny(spec);
    if (fd.ok()) {
      listener = std::move(fd).value();
    } else if (fd.status().code() != StatusCode::kUnavailable || deadline.expired()) {
      return fd.status();
    } else {
      ::poll(nullptr, 0, deadline.remaining_ms(50));  // an older process may still hold the port
    }
  }
  ZPP_ASSIGN_OR_RETURN(auto ranks, Assembly(spec.world, spec.job).Run(listener.get(), deadline));
  // No rank may come to this listener any more before the first hears that all are here: the next
  // rendezvous of the same job would lose it.
  listener.Reset();
  for (Connection& rank : ranks) {
    if (rank.open()) (void)rank.Send({FrameType::kWelcome, {}});
  }
  return ranks;
}

}  // namespace zpp::internal
