#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

namespace zpp::cli {
namespace {

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

InterruptWatch::InterruptWatch() {
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { Watch(); });
}

InterruptWatch::~InterruptWatch() {
  stop_ = true;
  thread_.join();
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void InterruptWatch::OnSignal(std::function<void(int)> action) {
  const std::lock_guard lock(mutex_);
  action_ = std::move(action);
  if (signal_ != 0 && action_) action_(signal_);
}

void InterruptWatch::Watch() {
  const sigset_t set = StopSignals();
  const timespec nap{.tv_sec = 0, .tv_nsec = 50'000'000};  // how late the destructor may be noticed
  while (!stop_) {
    const int number = sigtimedwait(&set, nullptr, &nap);
    if (number <= 0) continue;
    if (signal_ != 0) _exit(128 + number);
    const std::lock_guard lock(mutex_);
    signal_ = number;
    if (action_) action_(number);
  }
}

}  // namespace zpp::cli
