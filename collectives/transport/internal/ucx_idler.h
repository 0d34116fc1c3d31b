// How a rank waits for UCX without burning a core that another rank needs.
#pragma once

#include <poll.h>
#include <sched.h>
#include <ucp/api/ucp.h>

#include <span>

#include "common/deadline.h"

namespace zpp::internal {

// A little spinning, then giving way to ranks that share the core, then sleep.
class UcxIdler {
 public:
  // Where ranks outnumber cores the peer that is waited for may need this very core.
  explicit UcxIdler(bool crowded) : spins_(crowded ? 0 : 50) {}
  // Something moved.
  void Reset() { empty_ = woken_ = 0; }
  // `waited`: UCX's event descriptor first, then what else may end the wait. True when it slept.
  bool Pause(ucp_worker_h worker, std::span<pollfd> waited, Deadline deadline) {
    ++empty_;
    if (empty_ <= spins_) return false;
    if (empty_ <= spins_ + kYields) return GiveWay();
    // UCX refuses to arm while something is pending that only progress (here or at the peer) can
    // move. Mostly that is over in a moment. Over TCP it may go on for as long as we wait: a socket
    // stays registered as writable, and then UCX refuses, or its descriptor is readable although
    // nothing moves. So after some of either, sleep without it, shortly.
    if (woken_ >= kVainWakes) return Nap(waited, deadline);
    if (ucp_worker_arm(worker) != UCS_OK) {
      return empty_ <= spins_ + kYields + kRefusals ? GiveWay() : Nap(waited, deadline);
    }
    const int ready = ::poll(waited.data(), waited.size(), deadline.remaining_ms(kLongestSleep_ms));
    if (ready > 0) ++woken_;
    return true;
  }

 private:
  static bool GiveWay() {
    ::sched_yield();
    return false;
  }

  static bool Nap(std::span<pollfd> waited, Deadline deadline) {
    const timespec nap{.tv_sec = 0, .tv_nsec = deadline.expired() ? 0 : kNap_ns};
    ::ppoll(waited.data() + 1, waited.size() - 1, &nap, nullptr);
    return true;
  }

  // Short: UCX may lose a wake-up when ranks share memory across network namespaces.
  static constexpr int kLongestSleep_ms = 2;
  static constexpr int kYields = 300;
  static constexpr int kRefusals = 1000;  // half a millisecond in which nothing moves
  static constexpr int kVainWakes = 3;
  static constexpr long kNap_ns = 250'000;
  const int spins_;
  int empty_ = 0;  // looks since something moved
  int woken_ = 0;  // wake-ups since then
};

}  // namespace zpp::internal
