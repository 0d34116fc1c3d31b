#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "collectives/bootstrap/internal/rank_names.h"
#include "collectives/transport/internal/in_process_hub.h"

namespace zpp::in_process {
namespace {

struct Key {
  int peer;
  Tag tag;
  auto operator<=>(const Key&) const = default;
};

struct Batch {
  std::vector<std::shared_ptr<Message>> sends;
  std::vector<int> send_peers;
  size_t recvs_left = 0;
};
struct Posted {
  std::span<std::byte> data;
  Ticket ticket;
};
struct Match {
  std::shared_ptr<Message> message;
  Posted posted;
};

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(std::shared_ptr<Hub> hub, int rank, const InProcessOptions& options)
      : hub_(std::move(hub)), port_(hub_->port(rank)), rank_(rank) {
    if (options.adversary_seed)
      adversary_.emplace(*options.adversary_seed * 1000003 + static_cast<uint64_t>(rank));
  }
  ~InProcessTransport() override {
    if (closed_) return;
    Retract();
    hub_->Abandon(rank_);
  }

  int rank() const override { return rank_; }
  int world() const override { return hub_->world(); }
  TransportInfo info() const override {
    return {.name = "in-process", .best_message_bytes = 256 << 10};
  }

  Result<Ticket> Start(std::span<const SendOp> sends, std::span<const RecvOp> recvs) override {
    ZPP_RETURN_IF_ERROR(Healthy());
    if (Status bad = CheckOps(sends, recvs); !bad.ok()) return Fail(std::move(bad));
    const Ticket ticket = next_ticket_++;
    Batch& batch = batches_[ticket];
    batch.recvs_left = recvs.size();
    for (const RecvOp& op : recvs) {
      if (adversary_ && !op.data.empty()) std::memset(op.data.data(), 0xa5, op.data.size());
      posted_.emplace(Key{op.peer, op.tag}, Posted{op.data, ticket});
    }
    for (const SendOp& op : sends) {
      auto message = std::make_shared<Message>();
      message->from = rank_;
      message->tag = op.tag;
      message->data = op.data;
      batch.sends.push_back(message);
      batch.send_peers.push_back(op.peer);
      hub_->Post(op.peer, std::move(message));
    }
    Advance(/*waiting=*/false);
    return ticket;
  }

  Status Wait(Ticket ticket, Deadline deadline) override {
    for (;;) {
      const uint64_t seen = Events();
      Advance(/*waiting=*/true);
      ZPP_ASSIGN_OR_RETURN(const bool complete, Finish(ticket));
      if (complete) return {};
      if (!held_back_.empty()) continue;
      std::unique_lock lock(port_.mutex);
      if (!WaitUntil(port_.news, lock, deadline, [&] { return port_.events != seen; })) {
        lock.unlock();
        return Fail({StatusCode::kDeadlineExceeded, "time is up, still owed: " + Owed(ticket)});
      }
    }
  }

  Result<bool> Test(Ticket ticket) override {
    Advance(/*waiting=*/false);
    return Finish(ticket);
  }

  void Progress() override { Advance(/*waiting=*/false); }

  void Abort(Status why) override {
    hub_->End(rank_, why.ok() ? Status(StatusCode::kAborted, "aborted") : why);
  }

  Status Shutdown(Deadline deadline) override {
    if (closed_) return {};
    ZPP_RETURN_IF_ERROR(Healthy());
    if (!batches_.empty()) return Fail(InvalidArgument("shutdown with batches in flight"));
    if (Status met = hub_->MeetForShutdown(rank_, deadline); !met.ok()) return Fail(std::move(met));
    closed_ = true;
    failure_ = Status(StatusCode::kAborted, "the transport has been shut down");
    return {};
  }

 private:
  // The first failure, whether it came from here, from Abort() or from a verdict.
  Status Healthy() {
    if (!failure_.ok()) return failure_;
    std::optional<Status> ended;
    {
      const std::lock_guard lock(port_.mutex);
      ended = port_.ended;
    }
    if (ended) Poison(*std::move(ended));
    return failure_;
  }

  const Status& Fail(Status why) {
    Poison(std::move(why));
    hub_->TransportFailed(rank_, failure_);
    return failure_;
  }

  const Status& Poison(Status why) {
    if (!failure_.ok()) return failure_;
    failure_ = std::move(why);
    Retract();
    return failure_;
  }

  // From here on nobody touches the memory of this rank's batches.
  void Retract() {
    for (auto& [ticket, batch] : batches_) {
      for (const auto& message : batch.sends) {
        const std::lock_guard lock(message->copying);
        message->retracted = true;
      }
    }
    batches_.clear();
    posted_.clear();
    held_back_.clear();
  }

  Status CheckOp(int peer, Tag tag) const {
    if (peer == rank_) {
      return InvalidArgument("rank " + std::to_string(rank_) + " cannot send to itself");
    }
    if (peer < 0 || peer >= world()) {
      return InvalidArgument("peer " + std::to_string(peer) + " is not in a world of " +
                             std::to_string(world()));
    }
    if (tag >> kTagBits == 0) return {};
    return InvalidArgument("tag " + std::to_string(tag) + " does not fit into 48 bits");
  }

  Status CheckOps(std::span<const SendOp> sends, std::span<const RecvOp> recvs) const {
    for (const SendOp& op : sends) ZPP_RETURN_IF_ERROR(CheckOp(op.peer, op.tag));
    std::map<Key, int> count;
    for (const RecvOp& op : recvs) {
      ZPP_RETURN_IF_ERROR(CheckOp(op.peer, op.tag));
      const Key key{op.peer, op.tag};
      if (++count[key] > 1 || posted_.contains(key)) {
        return InvalidArgument("tag " + std::to_string(op.tag) + " is already expected from rank " +
                               std::to_string(op.peer));
      }
    }
    return {};
  }

  uint64_t Events() {
    const std::lock_guard lock(port_.mutex);
    return port_.events;
  }

  // Takes what has come, matches it with what was posted, copies.
  void Advance(bool waiting) {
    if (!Healthy().ok()) return;
    std::vector<std::shared_ptr<Message>> inbox;
    {
      const std::lock_guard lock(port_.mutex);
      inbox.swap(port_.inbox);
    }
    for (auto& message : inbox) {
      const Key key{message->from, message->tag};
      if (!arrived_.emplace(key, std::move(message)).second) {
        Fail(Internal("rank " + std::to_string(key.peer) + " has two messages with tag " +
                      std::to_string(key.tag) + " in flight"));
        return;
      }
    }
    MatchArrived();
    Deliver(waiting);
    if (failure_.ok() && hub_->any_abandoned()) CheckAbandoned();
  }

  void MatchArrived() {
    for (auto it = arrived_.begin(); it != arrived_.end();) {
      const auto posted = posted_.find(it->first);
      if (posted == posted_.end()) {
        ++it;
        continue;
      }
      held_back_.push_back({std::move(it->second), posted->second});
      posted_.erase(posted);
      it = arrived_.erase(it);
    }
  }

  // Without an adversary: all, in order. With one: now and then one of them, at least one when the
  // rank waits.
  void Deliver(bool waiting) {
    std::vector<Match> due;
    if (!adversary_) {
      due.swap(held_back_);
    } else if (!held_back_.empty() && (waiting || (*adversary_)() % 4 == 0)) {
      std::swap(held_back_[(*adversary_)() % held_back_.size()], held_back_.back());
      due.push_back(std::move(held_back_.back()));
      held_back_.pop_back();
    }
    for (const Match& match : due) {
      if (failure_.ok()) CopyOne(match);
    }
  }

  void CopyOne(const Match& match) {
    Message& message = *match.message;
    bool mismatch = false;
    {
      const std::lock_guard lock(message.copying);
      if (message.retracted) {  // its sender has failed: still owed
        posted_.emplace(Key{message.from, message.tag}, match.posted);
        return;
      }
      mismatch = message.data.size() != match.posted.data.size();
      if (!mismatch && !message.data.empty()) {
        std::memcpy(match.posted.data.data(), message.data.data(), message.data.size());
      }
      message.taken.store(true, std::memory_order_release);
    }
    hub_->Notify(message.from);
    if (mismatch) {
      Fail(DataLoss("rank " + std::to_string(message.from) + " sent " +
                    std::to_string(message.data.size()) + " bytes where " +
                    std::to_string(match.posted.data.size()) + " are expected (tag " +
                    std::to_string(message.tag) + ")"));
      return;
    }
    --batches_.at(match.posted.ticket).recvs_left;
  }

  // True when complete; then the ticket is used up.
  Result<bool> Finish(Ticket ticket) {
    ZPP_RETURN_IF_ERROR(Healthy());
    const auto it = batches_.find(ticket);
    if (it == batches_.end()) {
      return Fail(InvalidArgument("ticket " + std::to_string(ticket) +
                                  " was never started, or waited for before"));
    }
    if (it->second.recvs_left > 0) return false;
    for (const auto& message : it->second.sends) {
      if (!message->taken.load(std::memory_order_acquire)) return false;
    }
    batches_.erase(it);
    return true;
  }

  void CheckAbandoned() {
    for (const auto& [key, posted] : posted_) {
      if (hub_->abandoned(key.peer)) return FailLost(key.peer);
    }
    for (const auto& [ticket, batch] : batches_) {
      for (size_t i = 0; i < batch.sends.size(); ++i) {
        const bool taken = batch.sends[i]->taken.load(std::memory_order_acquire);
        if (!taken && hub_->abandoned(batch.send_peers[i])) return FailLost(batch.send_peers[i]);
      }
    }
  }

  void FailLost(int peer) {
    Fail(Status::PeerLost(peer,
                          "rank " + std::to_string(peer) + " went away with messages outstanding"));
  }

  std::string Owed(Ticket ticket) const {
    std::vector<bool> owing(static_cast<size_t>(world()));
    for (const auto& [key, posted] : posted_) {
      if (posted.ticket == ticket) owing[static_cast<size_t>(key.peer)] = true;
    }
    const Batch& batch = batches_.at(ticket);
    for (size_t i = 0; i < batch.sends.size(); ++i) {
      if (!batch.sends[i]->taken.load()) owing[static_cast<size_t>(batch.send_peers[i])] = true;
    }
    std::vector<int> ranks;
    for (int r = 0; r < world(); ++r) {
      if (owing[static_cast<size_t>(r)]) ranks.push_back(r);
    }
    return internal::NameRanks(ranks) + "; " + internal::kMayDiffer;
  }

  const std::shared_ptr<Hub> hub_;
  Port& port_;
  const int rank_;
  Status failure_;
  bool closed_ = false;
  Ticket next_ticket_ = 1;
  std::map<Ticket, Batch> batches_;
  std::map<Key, Posted> posted_;
  std::map<Key, std::shared_ptr<Message>> arrived_;  // nobody has posted a receive yet
  std::vector<Match> held_back_;                     // matched, not copied yet
  std::optional<std::mt19937_64> adversary_;
};

}  // namespace

std::unique_ptr<Transport> MakeTransport(std::shared_ptr<Hub> hub, int rank,
                                         const InProcessOptions& options) {
  return std::make_unique<InProcessTransport>(std::move(hub), rank, options);
}

}  // namespace zpp::in_process
