// What a root communicator and all that were split from it share on one rank: the transport, the
// control plane, the first failure, the ids of their groups.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/bootstrap/out_of_band.h"
#include "collectives/exec/worker_pool.h"
#include "collectives/transport/transport.h"
#include "common/status.h"

namespace zpp {

class Engine;

// One thread at a time uses it, but for Fail() and failure(), which any may call.
class Family {
 public:
  // `control` may be null.
  Family(std::unique_ptr<Transport> transport, std::shared_ptr<ControlPlane> control,
         int codec_threads)
      : control_(std::move(control)), transport_(std::move(transport)), pool_(codec_threads) {}

  Transport& transport() { return *transport_; }
  ControlPlane* control() { return control_.get(); }
  WorkerPool& pool() { return pool_; }

  // The first failure wins, ends every call and, where they cannot know, reaches the other ranks.
  void Fail(const Status& why);
  // The same after a clean end: nobody is told and the transport is left alone.
  void Close(const Status& why) { Keep(why); }
  Status failure() const;

  void Join(Engine* engine) { engines_.push_back(engine); }
  void Part(Engine* engine) { std::erase(engines_, engine); }
  bool shared() const { return engines_.size() > 1; }
  // Whether another engine than `self` has works in its line.
  bool OthersBusy(const Engine* self) const;
  // Moves their lines a bounded step; true when something moved.
  bool MoveOthers(const Engine* self);
  // Runs until all lines are empty.
  Status DrainAll(Deadline deadline);

  // Ids of groups that this rank is in, one bit each; bit 0 is the root's.
  uint32_t groups() const { return groups_; }
  void Take(int group) { groups_ |= uint32_t{1} << group; }
  void Release(int group) { groups_ &= ~(uint32_t{1} << group); }

 private:
  bool Keep(const Status& why);

  const std::shared_ptr<ControlPlane> control_;
  const std::unique_ptr<Transport> transport_;
  WorkerPool pool_;
  std::vector<Engine*> engines_;
  uint32_t groups_ = 1;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  Status failure_;  // guarded by mutex_
};

}  // namespace zpp
