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
  void Reset() { empty_ = 0; }
  // True when it slept.
  bool Pause(ucp_worker_h worker, std::span<pollfd> waited, Deadline deadline) {
    ++empty_;
    if (empty_ <= spins_) return false;
    // UCX refuses to arm while something is pending that only progress (here or at the peer) can
    // move.
    if (empty_ <= spins_ + kYields || ucp_worker_arm(worker) != UCS_OK) {
      ::sched_yield();
      return false;
    }
    const int ready = ::poll(waited.data(), waited.size(), deadline.remaining_ms(kLongestSleep_ms));
    if (ready > 0) Reset();
    return true;
  }

 private:
  // Short: UCX may lose a wake-up when ranks share memory across network namespaces.
  static constexpr int kLongestSleep_ms = 2;
  static constexpr int kYields = 300;
  const int spins_;
  int empty_ = 0;
};

}  // namespace zpp::internal
