// Ranks that do not make the same call: each of them must end with an error, however alike the
// messages are cut, and nobody may take another call's bytes for his.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/process_world.h"
#include "tests/collectives/split_cases.h"
#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

using testing::HasSubstr;

struct Call {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kF32;
  int64_t elems = 1 << 19;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  CollectivePolicy policy = {};
  std::vector<int64_t> shards = {};
  bool feedback = false;
};

constexpr double kTimeout_s = 0.4;

Status Make(Communicator& comm, const Call& c, double timeout_s = kTimeout_s) {
  CallOptions call;
  call.op = c.op;
  call.policy = c.policy;
  call.policy->min_compress_bytes = 0;
  call.shard_elems = c.shards;
  call.deadline = Deadline::In(timeout_s);
  ReduceFeedback feedback;
  if (c.feedback) {
    auto made =
        comm.MakeFeedback(c.dtype, c.elems, call, FeedbackHops::kAll, ResidualType::kBF16, c.kind);
    ZPP_RETURN_IF_ERROR(made.status());
    feedback = std::move(made).value();
    call.feedback = &feedback;
  }
  const int64_t own =
      c.shards.empty() ? c.elems / comm.world() : c.shards[static_cast<size_t>(comm.rank())];
  std::vector<float> a(static_cast<size_t>(c.elems), 1), b(a.size(), 2);
  switch (c.kind) {
    case CollectiveKind::kAllGather:
      return comm.AllGather({c.dtype, a.data(), own}, {c.dtype, b.data(), c.elems}, call);
    case CollectiveKind::kReduceScatter:
      return comm.ReduceScatter({c.dtype, a.data(), c.elems}, {c.dtype, b.data(), own}, call);
    case CollectiveKind::kAllReduce:
      return comm.AllReduce({c.dtype, a.data(), c.elems}, {c.dtype, b.data(), c.elems}, call);
    case CollectiveKind::kAllToAll:
      return comm.AllToAll({c.dtype, a.data(), c.elems}, {c.dtype, b.data(), c.elems}, call);
    case CollectiveKind::kBroadcast:
      return comm.Broadcast({c.dtype, a.data(), c.elems}, c.root, call);
    case CollectiveKind::kBarrier:
      return comm.Barrier({.deadline = call.deadline});
  }
  return {};
}

CollectivePolicy Coded(const QuantSpec& spec) { return {.intra = spec, .inter = spec}; }

// Pairs that differ in one thing, most of them cut into equal messages.
std::vector<std::pair<std::string, std::pair<Call, Call>>> Pairs() {
  using K = CollectiveKind;
  constexpr int64_t n = 1 << 19;
  const QuantSpec linear = QuantSpec::Int4(Code::kLinear), sqrt = QuantSpec::Int4(Code::kSqrt);
  std::vector<std::pair<std::string, std::pair<Call, Call>>> pairs;
  for (K kind : {K::kAllGather, K::kReduceScatter, K::kAllReduce, K::kAllToAll, K::kBroadcast}) {
    const std::string name(CollectiveName(kind));
    pairs.push_back({name + " elems", {{.kind = kind}, {.kind = kind, .elems = 2 * n}}});
    pairs.push_back(
        {name + " dtype",
         {{.kind = kind, .dtype = DType::kF16}, {.kind = kind, .dtype = DType::kBF16}}});
  }
  for (K kind : {K::kAllGather, K::kReduceScatter, K::kAllReduce}) {
    const std::string name(CollectiveName(kind));
    pairs.push_back(
        {name + " code",
         {{.kind = kind, .policy = Coded(linear)}, {.kind = kind, .policy = Coded(sqrt)}}});
    pairs.push_back({name + " coded or not",
                     {{.kind = kind}, {.kind = kind, .policy = Coded(QuantSpec::Int8())}}});
    pairs.push_back({name + " shards",
                     {{.kind = kind, .shards = {n / 2, n / 2}},
                      {.kind = kind, .shards = {n / 2 + 2048, n / 2 - 2048}}}});
  }
  for (K kind : {K::kReduceScatter, K::kAllReduce}) {
    const std::string name(CollectiveName(kind));
    pairs.push_back({name + " op", {{.kind = kind}, {.kind = kind, .op = ReduceOp::kAvg}}});
    pairs.push_back(
        {name + " op, small",
         {{.kind = kind, .elems = 2}, {.kind = kind, .elems = 2, .op = ReduceOp::kAvg}}});
    pairs.push_back({name + " feedback",
                     {{.kind = kind, .policy = Coded(linear)},
                      {.kind = kind, .policy = Coded(linear), .feedback = true}}});
  }
  pairs.push_back({"root", {{.kind = K::kBroadcast}, {.kind = K::kBroadcast, .root = 1}}});
  pairs.push_back({"gather, scatter", {{.kind = K::kAllGather}, {.kind = K::kReduceScatter}}});
  pairs.push_back({"scatter, all-to-all", {{.kind = K::kReduceScatter}, {.kind = K::kAllToAll}}});
  pairs.push_back({"reduce, scatter", {{.kind = K::kAllReduce}, {.kind = K::kReduceScatter}}});
  pairs.push_back({"barrier, broadcast", {{.kind = K::kBarrier}, {.kind = K::kBroadcast}}});
  return pairs;
}

void ExpectBothFail(const std::string& name, const std::vector<RankOutcome>& outcomes) {
  for (size_t rank = 0; rank < 2; ++rank) {
    const Status& status = outcomes[rank].status;
    EXPECT_EQ(outcomes[rank].kind, RankOutcome::kReturned) << name;
    EXPECT_FALSE(status.ok()) << name << ": rank " << rank << " noticed nothing";
    EXPECT_THAT(status.message(), HasSubstr("other sizes or options")) << name;
    EXPECT_THAT(status.message(), HasSubstr("rank ")) << name;
    EXPECT_EQ(RemedyFor(status.code()), Remedy::kRebuild) << name << ": " << status.ToString();
  }
}

TEST(Mismatch, BothRanksFailOverThreads) {
  for (const auto& [name, calls] : Pairs()) {
    auto comms = ConnectThreads(2);
    const auto outcomes = RunThreads(2, [&](int rank) -> Result<std::string> {
      Communicator& comm = *comms[static_cast<size_t>(rank)];
      const Status status = Make(comm, rank == 0 ? calls.first : calls.second);
      ZPP_REQUIRE(status.ok() == comm.status().ok());
      ZPP_RETURN_IF_ERROR(status);
      return std::string();
    });
    ExpectBothFail(name, outcomes);
  }
}

// What one of them does wrong, both do: the calls themselves are right.
TEST(Mismatch, RanksThatAgreeDoNotFail) {
  for (const auto& [name, calls] : Pairs()) {
    for (const Call& call : {calls.first, calls.second}) {
      auto comms = ConnectThreads(2);
      const auto outcomes = RunThreads(2, [&](int rank) -> Result<std::string> {
        ZPP_RETURN_IF_ERROR(Make(*comms[static_cast<size_t>(rank)], call));
        return std::string();
      });
      EXPECT_TRUE(AllOk(outcomes)) << name;
    }
  }
}

// A call that one rank leaves out: the next of the same shape must not take its place.
TEST(Mismatch, ACallThatOneRankLeavesOut) {
  auto comms = ConnectThreads(2);
  const auto outcomes = RunThreads(2, [&](int rank) -> Result<std::string> {
    Communicator& comm = *comms[static_cast<size_t>(rank)];
    std::vector<float> x(1000, 1);
    ZPP_RETURN_IF_ERROR(comm.AllReduce(In(x), Out(x)));
    const Deadline deadline = Deadline::In(kTimeout_s);
    if (rank == 0) ZPP_RETURN_IF_ERROR(comm.Barrier({.deadline = deadline}));
    ZPP_RETURN_IF_ERROR(comm.AllReduce(In(x), Out(x), {.deadline = deadline}));
    return std::string();
  });
  ExpectBothFail("left out", outcomes);
}

// Some of them. Here a send is over before anybody takes it, so a broadcast's root may end well,
// but never a rank that is to receive. The deadline leaves the control plane time for its verdict.
TEST(Mismatch, BothRanksFailOverUcx) {
  const auto pairs = Pairs();
  for (size_t i = 0; i < pairs.size(); i += 4) {
    const auto& [name, calls] = pairs[i];
    if (calls.first.kind == CollectiveKind::kBroadcast) continue;
    const Topology topology = Topology::Flat(2);
    const auto outcomes = RunProcesses(2, 30, [&](int rank) -> Result<std::string> {
      ZPP_ASSIGN_OR_RETURN(UcxRank ucx, MakeUcxRank(rank, topology));
      ZPP_ASSIGN_OR_RETURN(
          auto comm, Communicator::Create(std::move(ucx.transport), ucx.control, topology, {}));
      ZPP_RETURN_IF_ERROR(Make(*comm, rank == 0 ? calls.first : calls.second, 2));
      return std::string();
    });
    ExpectBothFail(name, outcomes);
  }
}

}  // namespace
}  // namespace zpp::test
