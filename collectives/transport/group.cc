#include "collectives/transport/group.h"

#include <string>
#include <utility>

namespace zpp {
namespace {

class GroupTransport final : public Transport {
 public:
  GroupTransport(Transport* whole, std::vector<int32_t> ranks, int rank)
      : whole_(*whole), ranks_(std::move(ranks)), rank_(rank) {}

  int rank() const override { return rank_; }
  int world() const override { return static_cast<int>(ranks_.size()); }
  TransportInfo info() const override { return whole_.info(); }

  Result<Ticket> Start(std::span<const SendOp> sends, std::span<const RecvOp> recvs) override {
    sends_.assign(sends.begin(), sends.end());
    recvs_.assign(recvs.begin(), recvs.end());
    for (SendOp& op : sends_) op.peer = InWhole(op.peer);
    for (RecvOp& op : recvs_) op.peer = InWhole(op.peer);
    return whole_.Start(sends_, recvs_);
  }
  Status Wait(Ticket ticket, Deadline deadline) override { return whole_.Wait(ticket, deadline); }
  Result<bool> Test(Ticket ticket) override { return whole_.Test(ticket); }
  void Progress() override { whole_.Progress(); }
  void Abort(Status why) override { whole_.Abort(std::move(why)); }
  Result<Buffer> Allocate(size_t bytes) override { return whole_.Allocate(bytes); }
  Status Shutdown(Deadline /*deadline*/) override { return {}; }

 private:
  // What is no rank here is none there either: `whole` says so.
  int InWhole(int peer) const {
    return peer >= 0 && peer < world() ? ranks_[static_cast<size_t>(peer)] : -1;
  }

  Transport& whole_;
  const std::vector<int32_t> ranks_;
  const int rank_;
  std::vector<SendOp> sends_;
  std::vector<RecvOp> recvs_;
};

}  // namespace

std::unique_ptr<Transport> MakeGroup(Transport* whole, std::vector<int32_t> ranks, int rank) {
  return std::make_unique<GroupTransport>(whole, std::move(ranks), rank);
}

}  // namespace zpp
