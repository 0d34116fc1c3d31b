#include "collectives/exec/worker_pool.h"

#include "collectives/bootstrap/internal/fd.h"

namespace zpp {

WorkerPool::WorkerPool(int threads)
    : crew_(std::make_unique<Crew>()), generation_(internal::ForkGeneration()) {
  for (int i = 1; i < threads; ++i) {
    crew_->workers.emplace_back([crew = crew_.get()] { crew->Loop(); });
  }
}

WorkerPool::~WorkerPool() {
  if (generation_ != internal::ForkGeneration()) {
    (void)crew_.release();
    return;
  }
  {
    std::lock_guard lock(crew_->mutex);
    crew_->stop = true;
  }
  crew_->wake.notify_all();
  for (std::thread& worker : crew_->workers) worker.join();
}

void WorkerPool::Run(int64_t count, const std::function<void(int64_t)>& work,
                     const std::function<void()>& between) {
  Crew& crew = *crew_;
  {
    std::lock_guard lock(crew.mutex);
    crew.work = &work;
    crew.count = count;
    crew.next.store(0, std::memory_order_relaxed);
    crew.busy = static_cast<int>(crew.workers.size());
    ++crew.round;
  }
  crew.wake.notify_all();
  for (int64_t i; (i = crew.next.fetch_add(1, std::memory_order_relaxed)) < count;) {
    work(i);
    between();
  }
  std::unique_lock lock(crew.mutex);
  crew.done.wait(lock, [&] { return crew.busy == 0; });
}

void WorkerPool::Crew::Loop() {
  uint64_t seen = 0;
  std::unique_lock lock(mutex);
  for (;;) {
    wake.wait(lock, [&] { return stop || round != seen; });
    if (stop) return;
    seen = round;
    const int64_t last = count;
    const auto* call = work;
    lock.unlock();
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < last;) (*call)(i);
    lock.lock();
    if (--busy == 0) done.notify_one();
  }
}

}  // namespace zpp
