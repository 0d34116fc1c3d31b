// The line of a communicator's collectives: runs them one after another in the order they were
// started, and keeps the first failure.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/exec/family.h"
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
    bool check_wire = false;
    double timeout_s = 30;
    int group = 0;                    // part of every tag
    std::vector<int32_t> root_ranks;  // what errors call the ranks; empty: as they are
  };
  // Borrows both: `transport` is the family's, or a group of its ranks.
  Engine(Transport* transport, Family* family, Options options);
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

  bool busy() const { return !line_.empty(); }
  // Moves the line a bounded step; true when something moved. A failure ends the works.
  bool Move();

  // Any thread.
  void Fail(const Status& why) { family_->Fail(why); }
  // The family's, or what Close() said.
  Status failure() const;
  // The clean end of this engine alone: later calls get `why`.
  void Close(const Status& why);
  const SentTraffic& traffic() const { return traffic_; }

 private:
  Status BeginFront();
  Status StepFront(const Deadline* wait, bool* blocked);
  Status StepOrMoveOthers(const Deadline& limit, int* idle);
  void RenewPatience();
  Status CheckPatience(const Work::State& front);
  void EndFront(const Status& status);
  void EndAll(const Status& status);

  Transport* transport_;
  Family* family_;
  Options options_;
  SentTraffic traffic_;
  HostDriver driver_;
  Buffer lanes_;                                   // grows, never shrinks
  std::deque<std::shared_ptr<Work::State>> line_;  // the front one runs
  bool running_ = false;                           // the front one has begun
  uint64_t next_sequence_ = 0;
  Deadline patience_ =
      Deadline::Never();  // of a polled work without a deadline: renewed when it moves
  Deadline::Clock::time_point last_poll_{};
  std::atomic<bool> closed_{false};
  mutable std::mutex mutex_;
  Status why_closed_;  // guarded by mutex_
};

}  // namespace zpp
