// The checker catches planted bugs, one by one, and names them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "collectives/plan/checker.h"
#include "tests/collectives/plan_cases.h"

namespace zpp {
namespace {

using test::Flavor;
using testing::HasSubstr;

using Plans = std::vector<Plan>;

// 3 + 2 + 2 ranks on three nodes.
Topology ThreeNodes() {
  const int sizes[] = {3, 2, 2};
  return std::move(Topology::Nodes(sizes)).value();
}

struct Bug {
  const char* name;
  CollectiveKind kind;
  Flavor flavor;
  std::function<void(Plans&)> plant;
  const char* fault;  // part of what the checker says
};

void PrintTo(const Bug& bug, std::ostream* out) { *out << bug.name; }

uint32_t SlotAt(const Plan& plan, Place place) {
  for (uint32_t s = 0; s < plan.slots.size(); ++s) {
    if (plan.slots[s].place == place) return s;
  }
  return ~0u;
}

// A copy of an input part to the output, before everything else.
void CopyHomeTooEarly(Plan& plan, uint32_t part_index) {
  const uint32_t in = SlotAt(plan, Place::kInput), out = SlotAt(plan, Place::kOutput);
  plan.inputs.push_back({in, part_index, 1});
  plan.inputs.push_back({in, part_index, 1});
  const uint32_t first = static_cast<uint32_t>(plan.inputs.size() - 2);
  plan.ops.insert(plan.ops.begin(), Op{{out, part_index, 1}, first, 2, false});
  for (Stage& stage : plan.stages) {
    ++stage.before_end;
    ++stage.during_end;
  }
}

const Bug kBugs[] = {
    {"a receive is missing", CollectiveKind::kAllReduce, Flavor::kCompressed,
     [](Plans& p) {
       p[4].recvs.erase(p[4].recvs.begin());
       for (Stage& stage : p[4].stages) --stage.recvs_end;
     },
     "meets no receive"},
    {"a receive takes the next part", CollectiveKind::kAllGather, Flavor::kCompressed,
     [](Plans& p) {
       for (Message& m : p[1].recvs) {
         if (m.data.first + m.data.count < 7) return void(++m.data.first);
       }
     },
     "of other parts than the send"},
    {"the sender means int4, the receiver int8", CollectiveKind::kReduceScatter,
     Flavor::kCompressed,
     [](Plans& p) {
       for (Message& m : p[5].recvs) {
         if (m.tier == 1) return void(p[5].slots[m.data.slot].spec = QuantSpec::Int8());
       }
     },
     "in another encoding"},
    {"an operand counts twice", CollectiveKind::kReduceScatter, Flavor::kCompressed,
     [](Plans& p) {
       const Op& op = p[3].ops.back();
       p[3].inputs[op.first_in] = p[3].inputs[op.first_in + 1];
     },
     "is left out"},
    {"an operand is left out", CollectiveKind::kReduceScatter, Flavor::kCompressed,
     [](Plans& p) { --p[3].ops.back().num_in; }, "is left out"},
    {"operands in order of arrival", CollectiveKind::kReduceScatter, Flavor::kCompressed,
     [](Plans& p) {
       const Op& op = p[3].ops.back();
       std::swap(p[3].inputs[op.first_in], p[3].inputs[op.first_in + 1]);
     },
     "not in rank order"},
    {"a sum before the wait", CollectiveKind::kReduceScatter, Flavor::kCompressed,
     [](Plans& p) { p[2].stages[0].during_end = p[2].stages[1].before_end; },
     "before it was written"},
    {"two messages land in one slot", CollectiveKind::kReduceScatter, Flavor::kCompressed,
     [](Plans& p) { p[0].recvs[1].data = p[0].recvs[0].data; }, "writes a second time"},
    {"the owner keeps its raw values", CollectiveKind::kAllGather, Flavor::kCompressed,
     [](Plans& p) {
       const uint32_t out = SlotAt(p[6], Place::kOutput), in = SlotAt(p[6], Place::kInput);
       for (const Op& op : p[6].ops) {
         if (op.out.slot == out) return void(p[6].inputs[op.first_in] = {in, 0, 1});
       }
     },
     "output part 6: is 6, not q8(6)"},
    {"a send goes out a stage late", CollectiveKind::kAllReduce, Flavor::kCompressed,
     [](Plans& p) { --p[0].stages[2].sends_end; }, "meets no send"},
    {"a wrong peer", CollectiveKind::kAllReduce, Flavor::kCompressed,
     [](Plans& p) { p[0].sends[0].peer = 6; }, "meets no"},
    {"in place, the output is written while its input is still to be read",
     CollectiveKind::kAllReduce, Flavor::kPlain, [](Plans& p) { CopyHomeTooEarly(p[0], 3); },
     "in place, part"},
    {"a decode of what is on its way", CollectiveKind::kAllGather, Flavor::kCompressed,
     [](Plans& p) { p[0].stages[1].during_end = p[0].stages[2].during_end; },
     "before it was written"},
    {"partial sums never leave the node", CollectiveKind::kAllReduce, Flavor::kCompressed,
     [](Plans& p) {
       for (Plan& plan : p) {
         for (Op& op : plan.ops) {
           if (op.num_in == 3 && op.out.count == 1) op.num_in = 1;
         }
       }
     },
     "is left out"},
    {"a mean that is not divided", CollectiveKind::kAllReduce, Flavor::kMean16,
     [](Plans& p) {
       for (Op& op : p[2].ops) op.average = false;
     },
     "is divided 0 times"},
    {"a mean that is divided twice", CollectiveKind::kReduceScatter, Flavor::kWideMean16,
     [](Plans& p) {
       for (Plan& plan : p) plan.ops.back().average = true;
     },
     "is divided 2 times"},
    {"a slot names a part that does not exist", CollectiveKind::kAllGather, Flavor::kPlain,
     [](Plans& p) { p[3].part_ids[2] = 7; }, "part 7 is no part"},
    {"an op reads beyond its slot", CollectiveKind::kAllGather, Flavor::kCompressed,
     [](Plans& p) { p[3].inputs.back().count += 9; }, "an operand is out of range"},
    {"ranks with different numbers of stages", CollectiveKind::kAllGather, Flavor::kCompressed,
     [](Plans& p) { p[3].stages.push_back(p[3].stages.back()); }, "rank 3: 4 stages, rank 0 has 3"},
    {"the input is written", CollectiveKind::kReduceScatter, Flavor::kPlain,
     [](Plans& p) { p[3].recvs[0].data.slot = SlotAt(p[3], Place::kInput); }, "writes the input"},
    {"a message is booked on the wrong tier", CollectiveKind::kAllGather, Flavor::kPlain,
     [](Plans& p) { p[3].sends[0].tier = 0; }, "the tier is wrong"},
    {"a barrier without its last round", CollectiveKind::kBarrier, Flavor::kPlain,
     [](Plans& p) {
       for (Plan& plan : p) {
         plan.stages.pop_back();
         plan.sends.pop_back();
         plan.recvs.pop_back();
       }
     },
     "has come"},
    {"a shard is taken for the whole vector", CollectiveKind::kAllGather, Flavor::kPlain,
     [](Plans& p) { p[0].input_is_shard = false; }, "a shard where the whole vector is due"},
};

class PlantedBug : public testing::TestWithParam<Bug> {};

TEST_P(PlantedBug, IsCaughtAndNamed) {
  const Bug& bug = GetParam();
  const Topology topology = ThreeNodes();
  const test::Case c = test::MakeCase(topology, bug.kind, bug.flavor, 20'011);
  Plans plans = std::move(MakeAllPlans(c.request)).value();
  ASSERT_TRUE(Check(plans, c.request, c.parts, {.in_place = true}).ok());
  bug.plant(plans);
  const Proof proof = Check(plans, c.request, c.parts, {.in_place = true});
  ASSERT_FALSE(proof.ok());
  EXPECT_THAT(testing::PrintToString(proof.faults), HasSubstr(bug.fault));
}
INSTANTIATE_TEST_SUITE_P(All, PlantedBug, testing::ValuesIn(kBugs));

Plans AllReducePlans(const Topology& topology, test::Case* c) {
  *c = test::MakeCase(topology, CollectiveKind::kAllReduce, Flavor::kCompressed, 20'011);
  return std::move(MakeAllPlans(c->request)).value();
}

TEST(PlanBugsTest, TwoLiveSlotsAtOnePlaceInTheArena) {
  const Topology topology = ThreeNodes();
  test::Case c;
  const Plans plans = AllReducePlans(topology, &c);
  Arena arena = AssignArena(plans[0], c.parts, 0, 3);
  ASSERT_EQ(CheckArena(plans[0], c.parts, arena, 0, 3), "");
  *std::find_if(arena.offset_bytes.begin(), arena.offset_bytes.end(),
                [](int64_t at) { return at > 0; }) = 0;
  EXPECT_THAT(CheckArena(plans[0], c.parts, arena, 0, 3), HasSubstr("while both hold data"));
}

TEST(PlanBugsTest, AnArenaThatIsTooSmall) {
  const Topology topology = ThreeNodes();
  test::Case c;
  const Plans plans = AllReducePlans(topology, &c);
  Arena arena = AssignArena(plans[0], c.parts, 0, 3);
  arena.bytes -= 64;
  EXPECT_THAT(CheckArena(plans[0], c.parts, arena, 0, 3), HasSubstr("does not lie in the arena"));
}

TEST(PlanBugsTest, ARankWithOneLaneAmongRanksWithNineDeadlocks) {
  const Topology topology = ThreeNodes();
  test::Case c;
  const Plans plans = AllReducePlans(topology, &c);
  std::vector<Pipeline> pipelines(plans.size(), {.chunks = 4, .depth = 2, .lanes = 9});
  ASSERT_EQ(CheckProgress(plans, pipelines), "");
  pipelines[0] = {.chunks = 4, .depth = 1, .lanes = 1};
  EXPECT_THAT(CheckProgress(plans, pipelines), HasSubstr("waits for ever"));
}

TEST(PlanBugsTest, ARankWithFewerChunksDeadlocks) {
  const Topology topology = ThreeNodes();
  test::Case c;
  const Plans plans = AllReducePlans(topology, &c);
  std::vector<Pipeline> pipelines(plans.size(), {.chunks = 4, .depth = 2, .lanes = 9});
  pipelines[3].chunks = 3;
  EXPECT_THAT(CheckProgress(plans, pipelines), HasSubstr("waits for ever"));
}

}  // namespace
}  // namespace zpp
