// The line of a communicator's collectives: runs them one after another in the order they were
// started, and keeps the first failure.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "collectives/bootstrap/out_of_band.h"
#include "collectives/exec/host_driver.h"
#include "collectives/exec/work_state.h"
#include "collectives/transport/transport.h"
#include "common/buffer.h"
#include "common/deadline.h"
#include "common/status.h"

namespace zpp {

class Engine {
 public:
  struct Options {
    int tiers = 1;
    int codec_threads = 1;
    bool check_wire = false;
    double timeout_s = 30;
  };
  // Borrows both; `control` may be null.
  Engine(Transport* transport, ControlPlane* control, const Options& options);
  // Ends what is still in line with kAborted. After it nothing touches the callers' memory.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // At the end of the line. `work` has its plan and buffers; the engine gives the sequence number.
  void Submit(const std::shared_ptr<Work::State>& work);
  // Moves the line a bounded step without waiting; true when `work` has ended.
  bool Poll(Work::State& work);
  Status Wait(Work::State& work, Deadline deadline);
  // Runs until the line is empty.
  Status Drain(Deadline deadline);

  // The first failure wins. Any thread.
  void Fail(const Status& why);
  Status failure() const;
  // The clean end: later calls get `why`, but nobody is told and the transport is left alone.
  void Close(const Status& why);
  const SentTraffic& traffic() const { return traffic_; }

 private:
  bool Keep(const Status& why);
  Status BeginFront();
  Status StepFront(const Deadline* wait, bool* blocked);
  void RenewPatience();
  Status CheckPatience(const Work::State& front);
  void EndFront(const Status& status);
  void EndAll(const Status& status);

  Transport* transport_;
  ControlPlane* control_;
  Options options_;
  SentTraffic traffic_;
  WorkerPool pool_;
  HostDriver driver_;
  Buffer lanes_;                                   // grows, never shrinks
  std::deque<std::shared_ptr<Work::State>> line_;  // the front one runs
  bool running_ = false;                           // the front one has begun
  uint64_t next_sequence_ = 0;
  Deadline patience_ =
      Deadline::Never();  // of a polled work without a deadline: renewed when it moves
  Deadline::Clock::time_point last_poll_{};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  Status failure_;  // guarded by mutex_
};

}  // namespace zpp
