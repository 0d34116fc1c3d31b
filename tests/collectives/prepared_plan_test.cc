// Which copies go past the caches: those of a large vector that the plan does not read again. No
// result depends on it, so only this test sees it.
#include "collectives/exec/prepared_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/collectives/plan_cases.h"

namespace zpp {
namespace {

using test::Flavor;

constexpr int64_t kMebi = int64_t{1} << 20;

PreparedPlan Prepared(const Topology& topology, CollectiveKind kind, int rank, int64_t elems) {
  const test::Case c = test::MakeCase(topology, kind, Flavor::kPlain, elems);
  Plan plan = std::move(MakePlan(c.request, rank)).value();
  return std::move(Prepare({.plan = std::move(plan),
                            .parts = c.parts,
                            .dtype = DType::kF32,
                            .chunks = 4,
                            .topology = &topology}))
      .value();
}

bool Streams(const std::vector<StoreHint>& stores, size_t i) {
  return stores.at(i) == StoreHint::kStream;
}
size_t HowManyStream(const std::vector<StoreHint>& stores) {
  return static_cast<size_t>(std::count(stores.begin(), stores.end(), StoreHint::kStream));
}

TEST(PreparedPlan, OnlyLargeVectorsAreStreamed) {
  const Topology one_node = Topology::Flat(4);
  const std::vector<int> one_each = {1, 1};
  const Topology lone_ranks = *Topology::Nodes(one_each);
  struct Row {
    const Topology* topology;
    int64_t elems;
    bool streams;
  };
  // 16 MiB where ranks share a node, 64 MiB where each has its own.
  for (const Row& row : {Row{&one_node, 4 * kMebi, true}, Row{&one_node, 4 * kMebi - 64, false},
                         Row{&lone_ranks, 16 * kMebi, true},
                         Row{&lone_ranks, 16 * kMebi - 64, false}, Row{&one_node, 0, false}}) {
    const PreparedPlan plan = Prepared(*row.topology, CollectiveKind::kAllGather, 1, row.elems);
    ASSERT_FALSE(plan.recv_stores.empty());
    for (const auto* stores : {&plan.recv_stores, &plan.send_stores, &plan.op_stores}) {
      EXPECT_EQ(HowManyStream(*stores), row.streams ? stores->size() : 0) << row.elems;
    }
  }
}

// The own part of an all-reduce is summed into the output and sent from there; the others' parts
// arrive and stay.
TEST(PreparedPlan, WhatIsReadAgainStaysInTheCaches) {
  const Topology topology = Topology::Flat(4);
  const PreparedPlan plan = Prepared(topology, CollectiveKind::kAllReduce, 2, 16 * kMebi);
  size_t summed = 0, gathered = 0;
  for (size_t i = 0; i < plan.plan.ops.size(); ++i) {
    if (plan.plan.slots[plan.plan.ops[i].out.slot].place != Place::kOutput) continue;
    ++summed;
    EXPECT_FALSE(Streams(plan.op_stores, i));
  }
  for (size_t i = 0; i < plan.plan.recvs.size(); ++i) {
    const bool to_output = plan.plan.slots[plan.plan.recvs[i].data.slot].place == Place::kOutput;
    EXPECT_EQ(Streams(plan.recv_stores, i), to_output) << i;
    gathered += to_output ? 1 : 0;
  }
  EXPECT_EQ(summed, 1u);
  EXPECT_EQ(gathered, 3u);
}

// Ranks that pass on what they have received read it again; the last ones do not.
TEST(PreparedPlan, ARelayKeepsWhatItPassesOn) {
  const Topology topology = Topology::Flat(4);
  for (int rank = 0; rank < 4; ++rank) {
    const PreparedPlan plan = Prepared(topology, CollectiveKind::kBroadcast, rank, 16 * kMebi);
    const bool relays = !plan.plan.sends.empty();
    EXPECT_EQ(HowManyStream(plan.recv_stores), relays ? 0 : plan.recv_stores.size()) << rank;
  }
}

// The shard that a reduce-scatter leaves is what the caller works on next.
TEST(PreparedPlan, AShardIsNotStreamed) {
  const PreparedPlan plan =
      Prepared(Topology::Flat(4), CollectiveKind::kReduceScatter, 0, 16 * kMebi);
  EXPECT_EQ(HowManyStream(plan.op_stores), 0u);
  EXPECT_EQ(HowManyStream(plan.recv_stores), 0u);
  EXPECT_EQ(HowManyStream(plan.send_stores), plan.send_stores.size());
}

}  // namespace
}  // namespace zpp
