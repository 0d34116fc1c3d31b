// What the ranks of an in-process group share. Locks are leaves: none is taken while another is
// held, but for a Message's own, under which only memory is copied.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/transport/in_process.h"
#include "collectives/transport/transport.h"
#include "common/deadline.h"
#include "common/status.h"

namespace zpp::in_process {

// A send on its way. Points into the sender's memory until it is taken or retracted.
struct Message {
  int from = -1;
  Tag tag = 0;
  std::span<const std::byte> data;
  std::mutex copying;  // held while a receiver reads `data`, and by the sender to retract it
  std::atomic<bool> taken{false};  // the receiver is done with it
  bool retracted = false;          // guarded by `copying`: `data` must not be read any more
};

// Where the other ranks leave messages and news for one rank.
struct Port {
  std::mutex mutex;
  std::condition_variable news;
  std::vector<std::shared_ptr<Message>> inbox;
  uint64_t events = 0;          // counts whatever may end a wait
  std::optional<Status> ended;  // Abort() or a verdict
};

// Waits on `news` until `ready()` or the deadline; false when time is up.
template <typename Ready>
bool WaitUntil(std::condition_variable& news, std::unique_lock<std::mutex>& lock, Deadline deadline,
               Ready ready) {
  while (!ready()) {
    if (deadline.expired()) return false;
    if (deadline.never()) {
      news.wait(lock);
    } else {
      news.wait_until(lock, deadline.when());
    }
  }
  return true;
}

class Hub {
 public:
  Hub(int world, bool has_control, bool has_transport);
  ~Hub();
  Hub(const Hub&) = delete;

  int world() const { return world_; }
  Port& port(int rank) { return *ports_[static_cast<size_t>(rank)]; }

  // Puts a message in front of `to`.
  void Post(int to, std::shared_ptr<Message> message);
  // Something happened that `rank` may be waiting for.
  void Notify(int rank);
  // Ends the blocked and later calls of one rank's transport; the first reason wins.
  void End(int rank, const Status& why);

  // A transport went away without Shutdown().
  void Abandon(int rank);
  bool any_abandoned() const { return abandoned_count_.load(std::memory_order_acquire) > 0; }
  bool abandoned(int rank) const {
    return abandoned_[static_cast<size_t>(rank)].load(std::memory_order_acquire);
  }
  // Meets all other transports.
  Status MeetForShutdown(int rank, Deadline deadline);
  // A transport failed: the others are told when there is a control plane.
  void TransportFailed(int rank, const Status& why);

  Result<std::vector<std::string>> Gather(int rank, const std::string& mine, Deadline deadline);
  std::optional<Status> Verdict();
  std::optional<Status> AwaitVerdict(Deadline deadline);
  int verdict_fd() const { return verdict_fd_; }
  void AbortAll(int from, const std::string& why);
  void Report(int from, int suspect, const std::string& why);
  void Leave(int rank);
  // A control plane went away; without Leave() before, its rank is lost.
  void CloseControl(int rank);

 private:
  struct Round {
    std::vector<std::optional<std::string>> blobs;
    int arrived = 0, read = 0;
  };
  void Decide(Status verdict);
  Status WhyIncomplete(const std::vector<int>& missing, const std::string& what);

  const int world_;
  const bool has_control_, has_transport_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<std::atomic<bool>> abandoned_;
  std::atomic<int> abandoned_count_{0};
  int verdict_fd_ = -1;

  std::mutex mutex_;  // guards what follows
  std::condition_variable news_;
  std::optional<Status> verdict_;
  std::vector<bool> left_, came_to_shutdown_, shut_down_;
  std::vector<uint64_t> next_round_;
  std::map<uint64_t, Round> rounds_;
};

std::unique_ptr<Transport> MakeTransport(std::shared_ptr<Hub> hub, int rank,
                                         const InProcessOptions& options);

}  // namespace zpp::in_process
