// How a test learns that the ranks which it forked are where it wants them, however slow the
// machine is.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "common/deadline.h"

namespace zpp::test {

// Made before the ranks are forked; they share it.
class ReadyCount {
 public:
  ReadyCount() {
    void* memory =
        ::mmap(nullptr, sizeof(Count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    count_ = new (memory) Count(0);
  }
  ~ReadyCount() { ::munmap(count_, sizeof(Count)); }
  ReadyCount(const ReadyCount&) = delete;
  ReadyCount& operator=(const ReadyCount&) = delete;

  // A rank is there.
  void Arrive() { count_->fetch_add(1); }
  // False when fewer than `ranks` have come by then.
  bool Await(int ranks, Deadline deadline) const {
    while (count_->load() < ranks) {
      if (deadline.expired()) return false;
      ::usleep(1000);
    }
    return true;
  }

 private:
  using Count = std::atomic<int>;
  Count* count_;
};

}  // namespace zpp::test
