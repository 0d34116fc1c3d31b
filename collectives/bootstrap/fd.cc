#include "collectives/bootstrap/internal/fd.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>

namespace zpp::internal {
namespace {

// Held across fork(), so that the child finds the set whole. Never destroyed: descriptors may
// outlive static objects.
struct OpenFds {
  std::mutex mutex;
  std::set<int> fds;
  std::atomic<int> generation{0};
};

OpenFds& Registry() {
  static OpenFds* registry = [] {
    auto* made = new OpenFds;
    pthread_atfork([] { Registry().mutex.lock(); }, [] { Registry().mutex.unlock(); },
                   [] {
                     for (const int fd : Registry().fds) ::close(fd);
                     Registry().fds.clear();
                     Registry().generation.fetch_add(1);
                     Registry().mutex.unlock();
                   });
    return made;
  }();
  return *registry;
}

}  // namespace

int ForkGeneration() { return Registry().generation.load(); }

Fd::Fd(int fd) : fd_(fd), generation_(ForkGeneration()) {
  if (fd_ < 0) return;
  const std::lock_guard lock(Registry().mutex);
  Registry().fds.insert(fd_);
}

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  fd_ = std::exchange(other.fd_, -1);
  generation_ = other.generation_;
  return *this;
}

bool Fd::valid() const { return fd_ >= 0 && generation_ == ForkGeneration(); }

void Fd::Reset() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || generation_ != ForkGeneration()) return;
  const std::lock_guard lock(Registry().mutex);
  Registry().fds.erase(fd);
  ::close(fd);
}

Bell::Bell() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Bell::Ring() const {
  const uint64_t one = 1;
  // A full counter is already readable.
  [[maybe_unused]] const ssize_t written = ::write(fd(), &one, sizeof one);
}

void Bell::Clear() const {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(fd(), &count, sizeof count);
}

}  // namespace zpp::internal
