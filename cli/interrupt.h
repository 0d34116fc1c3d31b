// Ctrl-C and SIGTERM as an orderly end: the run fails, says so in its JSON, and lets go of its
// peers.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace zpp::cli {

// While it lives, SIGINT and SIGTERM are taken by a thread of its own (made before any other
// thread, so that all inherit the blocked signals). The first one calls what was given to OnSignal;
// a second one ends the process.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  // Replaces the action; called on the watching thread, at once when a signal has already come.
  // Empty: only noted.
  void OnSignal(std::function<void(int signal)> action);
  // The signal that came, 0 while there was none.
  int signal() const { return signal_; }

 private:
  void Watch();
  std::atomic<bool> stop_{false};
  std::atomic<int> signal_{0};
  std::mutex mutex_;
  std::function<void(int)> action_;
  std::thread thread_;
};

}  // namespace zpp::cli
