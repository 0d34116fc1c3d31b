// The collectives between forked processes, over shared memory inside a declared node and TCP
// across.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/collectives/collective_cases.h"
#include "tests/collectives/feedback_cases.h"
#include "tests/collectives/process_world.h"
#include "tests/collectives/split_cases.h"
#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

std::vector<CollectiveCase> Cases() {
  const CollectivePolicy coded{
      .intra = QuantSpec::Int8(), .inter = QuantSpec::Int4(Code::kSqrt), .min_compress_bytes = 0};
  std::vector<CollectiveCase> cases;
  for (const CollectivePolicy& policy : {CollectivePolicy{}, coded}) {
    for (auto kind :
         {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce}) {
      for (int64_t count : {0, 1, 7, 129, 4097, 1000003}) {
        cases.push_back(
            {.kind = kind, .shards = Shards::kUneven, .count = count, .policy = policy});
        cases.push_back({.kind = kind,
                         .dtype = DType::kBF16,
                         .op = ReduceOp::kAvg,
                         .in_place = true,
                         .count = count,
                         .policy = policy,
                         .async = true});
      }
    }
  }
  for (int64_t count : {1, 4097, 1000003}) {
    cases.push_back({.kind = CollectiveKind::kAllToAll, .dtype = DType::kByte, .count = count});
    cases.push_back({.kind = CollectiveKind::kBroadcast, .count = count, .root = 1});
  }
  cases.push_back({.kind = CollectiveKind::kBarrier, .dtype = DType::kByte});
  return cases;
}

void RunOver(const Topology& topology) {
  const auto outcomes = RunProcesses(topology.world(), 100, [&](int rank) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(UcxRank ucx, MakeUcxRank(rank, topology));
    ZPP_ASSIGN_OR_RETURN(auto comm,
                         Communicator::Create(std::move(ucx.transport), ucx.control, topology, {}));
    std::string digests;
    for (const CollectiveCase& c : Cases()) {
      ZPP_ASSIGN_OR_RETURN(const std::string digest, RunCase(*comm, c));
      if (c.kind != CollectiveKind::kReduceScatter && c.kind != CollectiveKind::kAllToAll) {
        digests += digest + " ";
      }
    }
    ZPP_RETURN_IF_ERROR(comm->Shutdown(Deadline::In(20)));
    return digests;
  });
  ASSERT_TRUE(AllOk(outcomes));
  for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.value, outcomes[0].value);
}

TEST(CollectivesOverUcx, OneNode) { RunOver(Topology::Flat(4)); }

TEST(CollectivesOverUcx, TwoNodes) {
  const std::vector<int> sizes = {2, 1};
  RunOver(*Topology::Nodes(sizes));
}

// Every rank gets, bit for bit, what it gets over threads.
void CompareWithThreads(const Topology& topology, const CommBody& body) {
  const auto outcomes = RunProcesses(topology.world(), 100, [&](int rank) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(UcxRank ucx, MakeUcxRank(rank, topology));
    ZPP_ASSIGN_OR_RETURN(auto comm,
                         Communicator::Create(std::move(ucx.transport), ucx.control, topology, {}));
    ZPP_ASSIGN_OR_RETURN(const std::string digests, body(*comm));
    ZPP_RETURN_IF_ERROR(comm->Shutdown(Deadline::In(20)));
    return digests;
  });
  ASSERT_TRUE(AllOk(outcomes));
  const auto threads = RunWorld({.topology = topology}, body);
  ASSERT_TRUE(threads.ok()) << threads.status().message();
  for (size_t r = 0; r < outcomes.size(); ++r) EXPECT_EQ(outcomes[r].value, (*threads)[r]);
}

TEST(CollectivesOverUcx, SplitInThreeWays) { CompareWithThreads(MegatronTopology(), RunMegatron); }

TEST(CollectivesOverUcx, ErrorFeedback) {
  const std::vector<int> three = {2, 1, 1};
  CompareWithThreads(*Topology::Nodes(three), [](Communicator& comm) -> Result<std::string> {
    std::string digests;
    for (auto kind : {CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce}) {
      for (ResidualType type : {ResidualType::kBF16, ResidualType::kInt8}) {
        ZPP_ASSIGN_OR_RETURN(
            const FeedbackRun run,
            RunFeedback(comm, {.kind = kind, .type = type, .elems = 1 << 20, .steps = 3}));
        digests += DigestOf(run);
      }
    }
    return digests;
  });
}

}  // namespace
}  // namespace zpp::test
