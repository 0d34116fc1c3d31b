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
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  // Calls work(0) .. work(count - 1), each once, in any order and on any thread; the caller takes
  // part and calls `between` (on its own thread only) after each piece it did. Returns when all are
  // done.
  void Run(int64_t count, const std::function<void(int64_t)>& work,
           const std::function<void()>& between);

 private:
  void Loop();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  uint64_t round_ = 0;  // guarded by mutex_, as all below but next_
  int busy_ = 0;
  bool stop_ = false;
  int64_t count_ = 0;
  const std::function<void(int64_t)>* work_ = nullptr;
  std::atomic<int64_t> next_{0};
};

}  // namespace zpp
