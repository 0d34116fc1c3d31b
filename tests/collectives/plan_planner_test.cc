// Shapes of plans: rounds, messages and bytes as the table of the README has them, and requests
// that none serves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "collectives/plan/checker.h"
#include "collectives/plan/internal/routing.h"
#include "collectives/plan/plan.h"
#include "quant/wire.h"
#include "tests/collectives/plan_cases.h"

namespace zpp {
namespace {

using test::Flavor;
using testing::ElementsAre;
using testing::HasSubstr;

Topology Regular(std::vector<int> fanout) { return std::move(Topology::Regular(fanout)).value(); }

Plan PlanOf(const test::Case& c, int rank) { return std::move(MakePlan(c.request, rank)).value(); }

// Bytes all ranks send per tier, whole.
std::vector<int64_t> AllBytes(const test::Case& c) {
  const int tiers = c.request.topology->tiers();
  std::vector<int64_t> sum(static_cast<size_t>(tiers), 0);
  const std::vector<Plan> plans = std::move(MakeAllPlans(c.request)).value();
  for (const Plan& plan : plans) {
    const std::vector<int64_t> bytes = SentBytes(plan, c.parts, 1, tiers);
    for (size_t t = 0; t < sum.size(); ++t) sum[t] += bytes[t];
  }
  return sum;
}

TEST(PlannerTest, RoundsAndMessagesOnNodesOfEight) {
  const Topology topology = Regular({8, 4});
  struct Row {
    CollectiveKind kind;
    Flavor flavor;
    size_t stages, sends;
  };
  for (const Row& row : {Row{CollectiveKind::kAllGather, Flavor::kPlain, 2, 3 + 7},
                         Row{CollectiveKind::kAllGather, Flavor::kCompressed, 3, 3 + 7},
                         Row{CollectiveKind::kReduceScatter, Flavor::kPlain, 3, 7 + 3},
                         Row{CollectiveKind::kAllReduce, Flavor::kPlain, 4, 20},
                         Row{CollectiveKind::kAllReduce, Flavor::kCompressed, 5, 20},
                         Row{CollectiveKind::kAllReduce, Flavor::kOneShot, 2, 31},
                         Row{CollectiveKind::kReduceScatter, Flavor::kFlat, 2, 31},
                         Row{CollectiveKind::kAllToAll, Flavor::kPlain, 1, 31},
                         Row{CollectiveKind::kBarrier, Flavor::kPlain, 5, 5}}) {
    const Plan plan = PlanOf(test::MakeCase(topology, row.kind, row.flavor, 1 << 16), 9);
    EXPECT_EQ(plan.stages.size(), row.stages) << CollectiveName(row.kind);
    EXPECT_EQ(plan.sends.size(), row.sends) << CollectiveName(row.kind);
  }
}

// M bytes in all, n ranks per node, N nodes: M (n-1) inside a node's ranks, M (N-1)/N out of a
// node.
TEST(PlannerTest, BytesPerTierAreTheFormulas) {
  const Topology topology = Regular({8, 4});
  const int64_t elems = 32 * 4096, plain = elems * 4;
  const test::Case gather =
      test::MakeCase(topology, CollectiveKind::kAllGather, Flavor::kPlain, elems);
  EXPECT_THAT(AllBytes(gather), ElementsAre(4 * plain * 7, plain * 3));
  const test::Case reduce =
      test::MakeCase(topology, CollectiveKind::kReduceScatter, Flavor::kCompressed, elems);
  const int64_t int8 = 32 * MessageBytes(QuantSpec::Int8(), 4096);
  const int64_t int4 = 32 * MessageBytes(QuantSpec::Int4(Code::kSqrt), 4096);
  EXPECT_THAT(AllBytes(reduce), ElementsAre(4 * int8 * 7, int4 * 3));
  const test::Case flat =
      test::MakeCase(topology, CollectiveKind::kReduceScatter, Flavor::kFlat, elems);
  EXPECT_THAT(AllBytes(flat), ElementsAre(int4 * 7, int4 * 24));
}

// Cross-node bytes do not grow with the ranks of a node.
TEST(PlannerTest, EachByteCrossesASlowLinkOnce) {
  for (int which : {1, 2, 3, 6}) {
    const test::Layout layout = test::MakeLayout(which, 20);
    const test::Case c =
        test::MakeCase(layout.topology, CollectiveKind::kAllGather, Flavor::kPlain, 20'000);
    EXPECT_EQ(AllBytes(c)[1], 80'000 * (layout.topology.num_nodes() - 1)) << layout.name;
  }
}

TEST(RoutingTest, EqualNodesMeetAlongTheRails) {
  const Topology topology = Regular({4, 3});
  for (int rank = 0; rank < 12; ++rank) {
    for (int node = 0; node < 3; ++node) {
      if (node == topology.NodeOf(rank)) continue;
      EXPECT_EQ(internal::Landing(topology, 1, rank, topology.Get(1, node)), node * 4 + rank % 4);
    }
  }
}

// Foreign parts are dealt out evenly, whatever the sizes of the nodes.
TEST(RoutingTest, UnevenNodesAreBalancedToOne) {
  for (int world = 2; world <= 40; ++world) {
    for (int which : {2, 3, 6}) {
      const test::Layout layout = test::MakeLayout(which, world);
      const Topology& topology = layout.topology;
      for (int node = 0; node < topology.num_nodes(); ++node) {
        uint32_t least = ~0u, most = 0, sum = 0;
        for (int32_t rank : topology.Get(1, node).ranks) {
          const uint32_t held = internal::HeldCount(topology, 1, rank);
          least = std::min(least, held);
          most = std::max(most, held);
          sum += held;
        }
        EXPECT_LE(most - least, 1u) << layout.name << ", node " << node;
        EXPECT_EQ(sum, static_cast<uint32_t>(world));
      }
    }
  }
}

TEST(RoutingTest, HeldPartsOfALevelAreAPrefixOfTheNextInwards) {
  const test::Layout layout = test::MakeLayout(9, 23);
  for (int rank = 0; rank < 23; ++rank) {
    std::vector<PartId> all = internal::HeldParts(layout.topology, 0, rank);
    for (int level = 1; level <= layout.topology.tiers(); ++level) {
      const std::vector<PartId> held = internal::HeldParts(layout.topology, level, rank);
      EXPECT_EQ(held.size(), internal::HeldCount(layout.topology, level, rank));
      EXPECT_TRUE(std::equal(held.begin(), held.end(), all.begin()));
    }
    std::sort(all.begin(), all.end());
    std::vector<PartId> every(23);
    std::iota(every.begin(), every.end(), 0u);
    EXPECT_EQ(all, every);
  }
}

TEST(PlannerTest, AWorldOfOneCopies) {
  for (int which = 0; which < test::kLayouts; ++which) {
    const test::Layout layout = test::MakeLayout(which, 1);
    for (CollectiveKind kind : test::kAllKinds) {
      if (kind == CollectiveKind::kBarrier) continue;
      const Plan plan = PlanOf(test::MakeCase(layout.topology, kind, Flavor::kCompressed, 1000), 0);
      ASSERT_EQ(plan.ops.size(), 1u);
      ASSERT_EQ(plan.ops[0].num_in, 1u);
      EXPECT_FALSE(plan.ops[0].average);
      EXPECT_TRUE(plan.sends.empty() && plan.recvs.empty());
      for (const Slot& slot : plan.slots) EXPECT_FALSE(slot.spec.compressed());
      EXPECT_EQ(plan.reason, "one rank: a copy");
    }
  }
}

// Wide partial sums: what has not been summed yet still travels in its own type.
TEST(PlannerTest, RawValuesTravelInTheirOwnType) {
  const int sizes[] = {2, 1};
  const Topology topology = std::move(Topology::Nodes(sizes)).value();
  test::Case c = test::MakeCase(topology, CollectiveKind::kReduceScatter, Flavor::kWideMean16, 768);
  c.request.op = ReduceOp::kSum;
  for (int rank = 0; rank < 3; ++rank) {
    const Plan plan = PlanOf(c, rank);
    for (const Message& send : plan.sends) {
      const bool raw = send.tier == 0 || rank == 2;
      EXPECT_EQ(plan.slots[send.data.slot].spec, QuantSpec::None(raw ? DType::kBF16 : DType::kF32));
    }
  }
}

std::string Refusal(const PlanRequest& q, int rank = 0) {
  const Result<Plan> plan = MakePlan(q, rank);
  EXPECT_EQ(plan.status().code(), plan.ok() ? StatusCode::kOk : StatusCode::kInvalidArgument);
  return plan.ok() ? "served" : plan.status().message();
}

TEST(PlannerTest, RequestsThatNoPlanServes) {
  const Topology topology = Regular({2, 2});
  const PlanRequest good =
      test::MakeCase(topology, CollectiveKind::kAllReduce, Flavor::kCompressed, 64).request;
  ASSERT_EQ(Refusal(good), "served");
  EXPECT_THAT(Refusal(good, 4), HasSubstr("rank 4 is not one of the 4 ranks"));
  EXPECT_THAT(Refusal(good, -1), HasSubstr("rank -1"));
  PlanRequest q = good;
  q.topology = nullptr;
  EXPECT_THAT(Refusal(q), HasSubstr("no topology"));
  q = good;
  const Topology nobody;
  q.topology = &nobody;
  EXPECT_THAT(Refusal(q), HasSubstr("no topology"));
  q = good;
  q.hop.pop_back();
  EXPECT_THAT(Refusal(q), HasSubstr("1 hop encodings for 2 tiers"));
  q = good;
  q.user = QuantSpec::Int8();
  EXPECT_THAT(Refusal(q), HasSubstr("the user's buffers cannot be int8"));
  q = good;
  q.user = QuantSpec::None(DType::kByte);
  EXPECT_THAT(Refusal(q), HasSubstr("all_reduce needs fp32, fp16 or bf16"));
  q = good;
  q.hop[0].block_elems = 33;
  EXPECT_NE(Refusal(q), "served");
  q = good;
  q.gather.rotation = 1;
  EXPECT_FALSE(MakePlan(q, 0).ok());
  q = good;
  q.kind = CollectiveKind::kBroadcast;
  q.root = 4;
  EXPECT_THAT(Refusal(q), HasSubstr("root 4 is not one of the 4 ranks"));
  q = good;
  q.kind = CollectiveKind::kAllGather;
  q.user = QuantSpec::None(DType::kByte);
  EXPECT_THAT(Refusal(q), HasSubstr("a vector of bytes travels as it is"));
  q.gather = q.user;
  EXPECT_EQ(Refusal(q), "served");
}

TEST(PlannerTest, PlansOfOneRankAndOfAllAreTheSame) {
  const test::Layout layout = test::MakeLayout(8, 17);
  const test::Case c =
      test::MakeCase(layout.topology, CollectiveKind::kAllReduce, Flavor::kUnequal, 4'000);
  const std::vector<Plan> plans = std::move(MakeAllPlans(c.request)).value();
  for (int rank = 0; rank < 17; ++rank) {
    EXPECT_EQ(ToText(PlanOf(c, rank), layout.topology),
              ToText(plans[static_cast<size_t>(rank)], layout.topology));
  }
}

TEST(PlannerTest, TheReasonSaysWhy) {
  const Topology topology = Regular({8, 4});
  auto reason = [&](CollectiveKind kind, Flavor flavor) {
    return PlanOf(test::MakeCase(topology, kind, flavor, 64), 0).reason;
  };
  EXPECT_THAT(reason(CollectiveKind::kAllGather, Flavor::kCompressed),
              HasSubstr("every byte crosses each slow link once"));
  EXPECT_THAT(reason(CollectiveKind::kReduceScatter, Flavor::kCompressed),
              HasSubstr("sent as int8/256 at tier 0, int4/128/sqrt at tier 1"));
  EXPECT_THAT(reason(CollectiveKind::kReduceScatter, Flavor::kFlat),
              HasSubstr("does not depend on the layout of nodes"));
  EXPECT_THAT(reason(CollectiveKind::kAllReduce, Flavor::kOneShot), HasSubstr("one round"));
}

}  // namespace
}  // namespace zpp
