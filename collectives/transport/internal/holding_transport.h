// Base of the wrappers that hold sends back: a batch becomes several inner batches, one per moment
// of release.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/transport/transport.h"

namespace zpp {

// Receives and sends that are free to go reach the inner transport in Start; held ones when their
// moment has come and this rank calls Wait, Test, Progress or Start. Waiting sleeps, in slices
// short enough to move what arrives.
class HoldingTransport : public Transport {
 public:
  using Clock = Deadline::Clock;

  explicit HoldingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int world() const override { return inner_->world(); }
  TransportInfo info() const override { return inner_->info(); }
  Result<Ticket> Start(std::span<const SendOp> sends, std::span<const RecvOp> recvs) override;
  Status Wait(Ticket ticket, Deadline deadline) override;
  Result<bool> Test(Ticket ticket) override;
  void Progress() override;
  void Abort(Status why) override { inner_->Abort(std::move(why)); }
  Result<Buffer> Allocate(size_t bytes) override { return inner_->Allocate(bytes); }
  Status Shutdown(Deadline deadline) override { return inner_->Shutdown(deadline); }

 protected:
  struct Fate {
    Clock::time_point release;        // in the past: at once; max(): never
    std::span<const std::byte> data;  // what is sent in its place
    bool lost = false;                // never sent, and its batch does not wait for it
  };
  // Called once per send whose peer is another rank of the world, in order.
  virtual Fate Decide(const SendOp& op, Clock::time_point now) = 0;

  Transport& inner() { return *inner_; }
  // Fails the inner transport, so that every later call returns `why`.
  Status Fail(Status why);

 private:
  struct Batch {
    std::vector<Ticket> inner;  // not yet complete
    int held = 0;
  };
  struct Held {
    SendOp op;
    Ticket ticket;
  };
  // What the inner transport would refuse must not be held back.
  bool IsLegal(const SendOp& op) const {
    return op.peer >= 0 && op.peer < world() && op.peer != rank() && op.tag >> kTagBits == 0;
  }
  Status ReleaseDue();
  Result<bool> Finish(Ticket ticket);
  Status TimeIsUp() const;

  const std::unique_ptr<Transport> inner_;
  Ticket next_ticket_ = 1;
  std::map<Ticket, Batch> batches_;
  std::multimap<Clock::time_point, Held> held_;  // equal moments: in order of Start
};

}  // namespace zpp
