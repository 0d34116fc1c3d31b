#include "collectives/exec/worker_pool.h"

namespace zpp {

WorkerPool::WorkerPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Loop(); });
}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void WorkerPool::Run(int64_t count, const std::function<void(int64_t)>& work,
                     const std::function<void()>& between) {
  {
    std::lock_guard lock(mutex_);
    work_ = &work;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    busy_ = static_cast<int>(workers_.size());
    ++round_;
  }
  wake_.notify_all();
  for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count;) {
    work(i);
    between();
  }
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
}

void WorkerPool::Loop() {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    const int64_t count = count_;
    const auto* work = work_;
    lock.unlock();
    for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count;) (*work)(i);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace zpp
