// Every collective is proven for worlds of 1 to 64 ranks in ten layouts.
#include <gtest/gtest.h>

#include "collectives/plan/checker.h"
#include "tests/collectives/plan_cases.h"

namespace zpp {
namespace {

using test::Case;
using test::Flavor;

bool RunsInPlace(CollectiveKind kind) { return kind != CollectiveKind::kAllToAll; }

std::string ProveMemory(const std::vector<Plan>& plans, const Partition& parts) {
  constexpr int kChunks = 3;
  for (const Plan& plan : plans) {
    for (int c = 0; c < kChunks; ++c) {
      const Arena arena = AssignArena(plan, parts, c, kChunks);
      const std::string fault = CheckArena(plan, parts, arena, c, kChunks);
      if (!fault.empty()) return fault;
    }
  }
  return "";
}

std::string Prove(const Case& c) {
  const Result<std::vector<Plan>> plans = MakeAllPlans(c.request);
  if (!plans.ok()) return plans.status().ToString();
  const Proof proof =
      Check(*plans, c.request, c.parts, {.in_place = RunsInPlace(c.request.kind), .chunks = 2});
  if (!proof.ok()) return proof.faults[0];
  std::vector<int64_t> sent(proof.tier_bytes.size(), 0);
  for (const Plan& plan : *plans) {
    const std::vector<int64_t> bytes =
        SentBytes(plan, c.parts, 2, static_cast<int>(proof.tier_bytes.size()));
    for (size_t t = 0; t < sent.size(); ++t) sent[t] += bytes[t];
  }
  if (sent != proof.tier_bytes) return "SentBytes() of all ranks is not what the proof counted";
  const Pipeline pipeline[] = {{.chunks = 4, .depth = 2, .lanes = 3}};
  const std::string progress = CheckProgress(*plans, pipeline);
  return progress.empty() ? ProveMemory(*plans, c.parts) : progress;
}

class PlanProof : public testing::TestWithParam<int> {};

// A parameter is a range of worlds.
TEST_P(PlanProof, EveryCollectiveInEveryLayout) {
  int proofs = 0;
  for (int world = GetParam(); world <= 64; world += 16) {
    for (int which = 0; which < test::kLayouts; ++which) {
      const test::Layout layout = test::MakeLayout(which, world);
      for (CollectiveKind kind : test::kAllKinds) {
        for (Flavor flavor : test::kAllFlavors) {
          if (!test::Applies(flavor, kind)) continue;
          const Case c = test::MakeCase(layout.topology, kind, flavor, 100'003);
          ASSERT_EQ(Prove(c), "") << CollectiveName(kind) << ", " << test::FlavorName(flavor)
                                  << ", world " << world << ", " << layout.name;
          ++proofs;
        }
      }
    }
  }
  EXPECT_EQ(proofs, 4 * test::kLayouts * 27);
}
INSTANTIATE_TEST_SUITE_P(Worlds, PlanProof, testing::Range(1, 17));

TEST(PlanProofTest, TinyVectorsLeaveShardsEmpty) {
  for (int64_t elems : {0, 1, 2, 7}) {
    for (int which = 0; which < test::kLayouts; ++which) {
      const test::Layout layout = test::MakeLayout(which, 13);
      for (CollectiveKind kind : test::kAllKinds) {
        for (Flavor flavor : test::kAllFlavors) {
          if (!test::Applies(flavor, kind)) continue;
          const Case c = test::MakeCase(layout.topology, kind, flavor, elems);
          ASSERT_EQ(Prove(c), "") << CollectiveName(kind) << ", " << test::FlavorName(flavor)
                                  << ", " << elems << " elements, " << layout.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace zpp
