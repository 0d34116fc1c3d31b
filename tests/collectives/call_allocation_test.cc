// A call of a known shape allocates nothing of its own; what a transport does is its affair.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/transport/in_process.h"
#include "tests/collectives/split_cases.h"
#include "tests/harness/ranks.h"

namespace {

// Of this thread, outside of the transport.
thread_local int64_t allocations = 0;
thread_local bool in_transport = false;

void* CountedAllocate(size_t bytes, size_t alignment = 0) {
  if (!in_transport) ++allocations;
  const size_t room = bytes == 0 ? 1 : bytes;
  void* data = alignment == 0
                   ? std::malloc(room)
                   : std::aligned_alloc(alignment, (room + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(size_t bytes) { return CountedAllocate(bytes); }
void* operator new[](size_t bytes) { return CountedAllocate(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return CountedAllocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete[](void* data, size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }

namespace zpp::test {
namespace {

class Inside {
 public:
  Inside() { in_transport = true; }
  ~Inside() { in_transport = false; }
};

class Uncounted final : public Transport {
 public:
  explicit Uncounted(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int world() const override { return inner_->world(); }
  TransportInfo info() const override { return inner_->info(); }
  Result<Ticket> Start(std::span<const SendOp> sends, std::span<const RecvOp> recvs) override {
    const Inside inside;
    return inner_->Start(sends, recvs);
  }
  Status Wait(Ticket ticket, Deadline deadline) override {
    const Inside inside;
    return inner_->Wait(ticket, deadline);
  }
  Result<bool> Test(Ticket ticket) override {
    const Inside inside;
    return inner_->Test(ticket);
  }
  void Progress() override {
    const Inside inside;
    inner_->Progress();
  }
  void Abort(Status why) override { inner_->Abort(std::move(why)); }
  Status Shutdown(Deadline deadline) override { return inner_->Shutdown(deadline); }

 private:
  const std::unique_ptr<Transport> inner_;
};

constexpr int kWorld = 4;
constexpr int64_t kElems = 1 << 18;

// Calls of every kind that compresses, with all that a call can be given.
class Caller {
 public:
  static Result<Caller> Make(Communicator& comm) {
    Caller caller(comm);
    caller.call_.policy = CollectivePolicy{
        .intra = QuantSpec::Int8(), .inter = QuantSpec::Int4(Code::kSqrt), .min_compress_bytes = 0};
    for (const auto kind : {CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce}) {
      ZPP_ASSIGN_OR_RETURN(auto feedback,
                           comm.MakeFeedback(DType::kF32, kElems, caller.call_, FeedbackHops::kAll,
                                             ResidualType::kInt8, kind));
      caller.feedback_.push_back(std::move(feedback));
    }
    return caller;
  }

  Status CallAll() {
    CallOptions call = call_;
    const Vec shard{DType::kF32, shard_.data(), static_cast<int64_t>(shard_.size())};
    ZPP_RETURN_IF_ERROR(comm_.AllReduce(In(in_), Out(out_), call));
    ZPP_RETURN_IF_ERROR(comm_.AllGather({DType::kF32, shard.data, shard.elems}, Out(out_), call));
    call.stats = &stats_;
    call.last_hop_stats = &last_;
    call.feedback = &feedback_[0];
    ZPP_RETURN_IF_ERROR(comm_.ReduceScatter(In(in_), shard, call));
    call.feedback = &feedback_[1];
    ZPP_RETURN_IF_ERROR(comm_.AllReduce(In(in_), Out(out_), call));
    ZPP_RETURN_IF_ERROR(feedback_[1].Scale(0.5f));
    return comm_.Barrier();
  }

 private:
  explicit Caller(Communicator& comm)
      : comm_(comm),
        in_(kElems, 1.5f),
        out_(kElems),
        shard_(static_cast<size_t>(kElems / comm.world())) {}

  Communicator& comm_;
  std::vector<float> in_, out_, shard_;
  CallOptions call_;
  std::vector<ReduceFeedback> feedback_;
  ErrorStats stats_, last_;
};

void ExpectNone(int codec_threads, bool of_group) {
  const Topology topology = *Topology::EvenNodes(kWorld, 2);
  auto net = MakeInProcessGroup(kWorld);
  const auto outcomes = RunThreads(kWorld, [&](int rank) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(
        auto root,
        Communicator::Create(std::make_unique<Uncounted>(std::move(net[static_cast<size_t>(rank)])),
                             nullptr, topology, {.codec_threads = codec_threads}));
    ZPP_ASSIGN_OR_RETURN(auto group, root->Split(0, -rank));
    ZPP_ASSIGN_OR_RETURN(Caller caller, Caller::Make(of_group ? *group : *root));
    ZPP_RETURN_IF_ERROR(caller.CallAll());
    ZPP_RETURN_IF_ERROR(caller.CallAll());
    const int64_t before = allocations;
    ZPP_REQUIRE(before > 0);  // they are counted
    for (int i = 0; i < 3; ++i) ZPP_RETURN_IF_ERROR(caller.CallAll());
    const int64_t made = allocations - before;
    ZPP_REQUIRE_MSG(made == 0, std::to_string(made) + " allocations");
    ZPP_RETURN_IF_ERROR(root->Shutdown(Deadline::In(30)));
    return std::string();
  });
  EXPECT_TRUE(AllOk(outcomes)) << codec_threads << " threads, group " << of_group;
}

TEST(CallAllocation, NoneOnOneThread) { ExpectNone(1, false); }
TEST(CallAllocation, NoneOnSeveralThreads) { ExpectNone(3, false); }
TEST(CallAllocation, NoneInAGroup) { ExpectNone(1, true); }

}  // namespace
}  // namespace zpp::test
