// A few threads that share out independent pieces of codec work with the thread that asks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace zpp {

class WorkerPool {
 public:
  // threads - 1 threads are started; 1 starts none. They sleep between calls.
  explicit WorkerPool(int threads);
  // In a forked child, where its threads do not exist, it lets go of them.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return static_cast<int>(crew_->workers.size()) + 1; }
  // Calls work(0) .. work(count - 1), each once, in any order and on any thread; the caller takes
  // part and calls `between` (on its own thread only) after each piece it did. Returns when all are
  // done.
  void Run(int64_t count, const std::function<void(int64_t)>& work,
           const std::function<void()>& between);

 private:
  // What the threads share. On the heap, so that a forked child can leave it alone: to destroy what
  // threads were waiting on would wait for them.
  struct Crew {
    std::vector<std::thread> workers;
    std::mutex mutex;
    std::condition_variable wake, done;
    uint64_t round = 0;  // guarded by mutex, as all below but next
    int busy = 0;
    bool stop = false;
    int64_t count = 0;
    const std::function<void(int64_t)>* work = nullptr;
    std::atomic<int64_t> next{0};

    void Loop();
  };

  std::unique_ptr<Crew> crew_;
  const int generation_;
};

}  // namespace zpp
