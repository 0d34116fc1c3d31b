#include "collectives/transport/fault.h"

#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "collectives/transport/internal/holding_transport.h"

namespace zpp {
namespace {

class FaultyTransport final : public HoldingTransport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, const Fault& fault)
      : HoldingTransport(std::move(inner)), fault_(fault) {}

  // A rank may die of the n-th message only here, before any of its batch has left.
  bool IsDueToDie(size_t sends) const {
    const int64_t after = sent_ + static_cast<int64_t>(sends);
    return fault_.kind == FaultKind::kDie && sent_ <= fault_.nth_message &&
           fault_.nth_message < after;
  }

 private:
  Fate Decide(const SendOp& op, Clock::time_point now) override {
    const int64_t index = sent_++;
    const Fate good{.release = now, .data = op.data};
    const bool hit = index == fault_.nth_message;
    switch (fault_.kind) {
      case FaultKind::kNone:
      case FaultKind::kDie:
        return good;
      case FaultKind::kDrop:
        return {.release = now, .data = op.data, .lost = hit};
      case FaultKind::kDelay:
        return hit ? Fate{.release = now + Delay(), .data = op.data} : good;
      case FaultKind::kTruncate:
        return hit ? Fate{.release = now, .data = op.data.first(op.data.size() / 2)} : good;
      case FaultKind::kFlipBit:
        return hit && !op.data.empty() ? Fate{.release = now, .data = Flipped(op.data)} : good;
      case FaultKind::kStall:
        return index >= fault_.nth_message
                   ? Fate{.release = Clock::time_point::max(), .data = op.data}
                   : good;
    }
    return good;
  }

  Clock::duration Delay() const {
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(fault_.delay_s));
  }

  std::span<const std::byte> Flipped(std::span<const std::byte> data) {
    flipped_.assign(data.begin(), data.end());
    std::mt19937_64 random(fault_.seed);
    flipped_[random() % flipped_.size()] ^= std::byte(1 << (random() % 8));
    return flipped_;
  }

  const Fault fault_;
  int64_t sent_ = 0;
  std::vector<std::byte>
      flipped_;  // lives as long as the transport: its one message may still be under way
};

// Lets go of the faulty transport when its hour has come.
class MortalTransport final : public Transport {
 public:
  MortalTransport(std::unique_ptr<FaultyTransport> alive, const Fault& fault)
      : alive_(std::move(alive)),
        rank_(alive_->rank()),
        world_(alive_->world()),
        info_(alive_->info()),
        die_(fault.die) {}

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  TransportInfo info() const override { return info_; }
  Result<Ticket> Start(std::span<const SendOp> sends, std::span<const RecvOp> recvs) override {
    if (alive_ && alive_->IsDueToDie(sends.size())) Die();
    return alive_ ? alive_->Start(sends, recvs) : Result<Ticket>(Dead());
  }
  Status Wait(Ticket ticket, Deadline deadline) override {
    return alive_ ? alive_->Wait(ticket, deadline) : Dead();
  }
  Result<bool> Test(Ticket ticket) override {
    return alive_ ? alive_->Test(ticket) : Result<bool>(Dead());
  }
  void Progress() override {
    if (alive_) alive_->Progress();
  }
  void Abort(Status why) override {
    const std::lock_guard lock(dying_);
    if (alive_) alive_->Abort(std::move(why));
  }
  Result<Buffer> Allocate(size_t bytes) override {
    return alive_ ? alive_->Allocate(bytes) : Result<Buffer>(Dead());
  }
  Status Shutdown(Deadline deadline) override {
    return alive_ ? alive_->Shutdown(deadline) : Dead();
  }

 private:
  void Die() {
    if (die_) die_();
    const std::lock_guard lock(dying_);
    alive_.reset();
  }
  Status Dead() const {
    return {StatusCode::kAborted, "rank " + std::to_string(rank_) + " died, as told"};
  }

  std::mutex
      dying_;  // Abort() comes from any thread; the owner alone changes and otherwise reads alive_
  std::unique_ptr<FaultyTransport> alive_;
  const int rank_, world_;
  const TransportInfo info_;
  const std::function<void()> die_;
};

}  // namespace

std::unique_ptr<Transport> MakeFaulty(std::unique_ptr<Transport> inner, const Fault& fault) {
  return std::make_unique<MortalTransport>(
      std::make_unique<FaultyTransport>(std::move(inner), fault), fault);
}

}  // namespace zpp
