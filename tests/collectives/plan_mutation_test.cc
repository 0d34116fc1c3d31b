// The test of the checker: random mutants of good plans. What it accepts must run to the same bits.
#include <gtest/gtest.h>

#include <random>

#include "collectives/plan/checker.h"
#include "quant/codec.h"
#include "tests/collectives/plan_cases.h"
#include "tests/collectives/plan_interpreter.h"

namespace zpp {
namespace {

using test::Bytes;
using test::Flavor;

constexpr Pipeline kPipeline = {.chunks = 3, .depth = 1, .lanes = 9};

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  int Pick(size_t n) { return static_cast<int>(random_() % n); }

  // One small change somewhere in one rank's plan.
  void Mutate(Plan& plan) {
    switch (Pick(10)) {
      case 0:
        return MutateMessage(plan.sends, plan.world);
      case 1:
        return MutateMessage(plan.recvs, plan.world);
      case 2:
        return MutateOp(plan);
      case 3:
        if (!plan.inputs.empty()) MutateSpan(plan.inputs[Of(plan.inputs)]);
        return;
      case 4:
        return MutateSlot(plan);
      case 5:
        return MutateStage(plan);
      case 6:
        if (!plan.part_ids.empty()) {
          plan.part_ids[Of(plan.part_ids)] = static_cast<PartId>(Pick(plan.part_ids.size() + 1));
        }
        return;
      case 7:
        if (plan.ops.size() > 1) std::swap(plan.ops[Of(plan.ops)], plan.ops[Of(plan.ops)]);
        return;
      case 8:
        if (plan.inputs.size() > 1) {
          std::swap(plan.inputs[Of(plan.inputs)], plan.inputs[Of(plan.inputs)]);
        }
        return;
      default:
        if (Pick(2) == 0)
          plan.input_is_shard = !plan.input_is_shard;
        else
          plan.output_is_shard = !plan.output_is_shard;
    }
  }

 private:
  template <typename T>
  size_t Of(const std::vector<T>& list) {
    return static_cast<size_t>(Pick(list.size()));
  }
  template <typename T>
  void Bump(T& value) {
    value = static_cast<T>(Pick(2) == 0 ? value + 1 : value - 1);
  }
  void MutateSpan(Span& span) {
    Bump(Pick(3) == 0 ? span.slot : Pick(2) == 0 ? span.first : span.count);
  }
  void MutateMessage(std::vector<Message>& list, int world) {
    if (list.empty()) return;
    Message& message = list[Of(list)];
    switch (Pick(4)) {
      case 0:
        message.peer = Pick(static_cast<size_t>(world));
        return;
      case 1:
        std::swap(message, list[Of(list)]);
        return;
      default:
        MutateSpan(message.data);
    }
  }
  void MutateOp(Plan& plan) {
    if (plan.ops.empty()) return;
    Op& op = plan.ops[Of(plan.ops)];
    switch (Pick(4)) {
      case 0:
        return MutateSpan(op.out);
      case 1:
        return Bump(op.num_in);
      case 2:
        return Bump(op.first_in);
      default:
        op.average = !op.average;
    }
  }
  void MutateSlot(Plan& plan) {
    Slot& slot = plan.slots[Of(plan.slots)];
    const QuantSpec specs[] = {
        QuantSpec::None(), QuantSpec::None(DType::kBF16), QuantSpec::None(DType::kF16),
        QuantSpec::Int8(), QuantSpec::Int4(Code::kSqrt),  QuantSpec::Int4(Code::kLinear)};
    switch (Pick(4)) {
      case 0:
        slot.spec = specs[Pick(std::size(specs))];
        return;
      case 1:
        slot.place = static_cast<Place>(Pick(3));
        return;
      case 2:
        return Bump(slot.parts.first);
      default:
        Bump(slot.parts.count);
    }
  }
  void MutateStage(Plan& plan) {
    if (plan.stages.empty()) return;
    Stage& stage = plan.stages[Of(plan.stages)];
    switch (Pick(4)) {
      case 0:
        return Bump(stage.before_end);
      case 1:
        return Bump(stage.during_end);
      case 2:
        return Bump(stage.sends_end);
      default:
        Bump(stage.recvs_end);
    }
  }

  std::mt19937 random_;
};

// A good set of plans and what it runs to.
struct Original {
  Topology topology;
  test::Case c;
  std::vector<Plan> plans;
  std::vector<Bytes> inputs;
  std::vector<Bytes> output;
};

// Values of many magnitudes: another order of summation or another rounding shows.
std::vector<float> RoughValues(int64_t elems, int rank) {
  std::mt19937 random(static_cast<uint32_t>(rank + 1));
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(elems));
  for (float& x : values) x = normal(random) * normal(random) * 3;
  return values;
}

std::unique_ptr<Original> MakeOriginal(Topology topology, CollectiveKind kind, Flavor flavor) {
  auto o = std::make_unique<Original>();
  o->topology = std::move(topology);
  o->c = test::MakeCase(o->topology, kind, flavor, 3'001);
  o->plans = std::move(MakeAllPlans(o->c.request)).value();
  for (const Plan& plan : o->plans) {
    const int64_t elems = test::InputElems(plan, o->c.parts, o->c.request);
    const std::vector<float> values = RoughValues(elems, plan.rank);
    Bytes& input =
        o->inputs.emplace_back(static_cast<size_t>(elems * SizeOf(o->c.request.user.plain)));
    EXPECT_TRUE(Encode(o->c.request.user, {DType::kF32, values.data(), elems}, input).ok());
  }
  const test::Outcome outcome =
      test::Interpret(o->plans, o->c.request, o->c.parts, o->inputs, {kPipeline, 1, false});
  EXPECT_EQ(outcome.fault, "");
  o->output = outcome.output;
  return o;
}

std::vector<std::unique_ptr<Original>> MakeOriginals() {
  std::vector<std::unique_ptr<Original>> originals;
  const int uneven[] = {3, 2, 1}, even[] = {2, 2};
  for (const Topology& topology :
       {std::move(Topology::Nodes(uneven)).value(), std::move(Topology::Regular(even)).value()}) {
    for (CollectiveKind kind : test::kAllKinds) {
      for (Flavor flavor : test::kAllFlavors) {
        if (test::Applies(flavor, kind)) originals.push_back(MakeOriginal(topology, kind, flavor));
      }
    }
  }
  return originals;
}

// "" or how an accepted mutant differs from its original.
std::string RunMutant(const Original& o, const std::vector<Plan>& plans, const Proof& proof,
                      bool in_place) {
  for (const Plan& plan : plans) {
    for (int c = 0; c < kPipeline.chunks; ++c) {
      const Arena arena = AssignArena(plan, o.c.parts, c, kPipeline.chunks);
      const std::string fault = CheckArena(plan, o.c.parts, arena, c, kPipeline.chunks);
      if (!fault.empty()) return fault;
    }
  }
  const test::Outcome outcome =
      test::Interpret(plans, o.c.request, o.c.parts, o.inputs, {kPipeline, 2, in_place});
  if (!outcome.fault.empty()) return outcome.fault;
  if (outcome.output != o.output) return "it runs to other bits";
  return outcome.tier_bytes == proof.tier_bytes ? "" : "it sends other bytes than proven";
}

TEST(PlanMutationTest, WhatTheCheckerAcceptsRunsToTheSameBits) {
  const std::vector<std::unique_ptr<Original>> originals = MakeOriginals();
  Mutator mutator(7);
  constexpr int kMutants = 20'000;
  const Pipeline pipelines[] = {kPipeline};
  int rejected = 0;
  for (int i = 0; i < kMutants; ++i) {
    const Original& o = *originals[static_cast<size_t>(i) % originals.size()];
    std::vector<Plan> plans = o.plans;
    mutator.Mutate(plans[static_cast<size_t>(mutator.Pick(plans.size()))]);
    const bool in_place = i % 3 == 0 && o.c.request.kind != CollectiveKind::kAllToAll;
    const Proof proof =
        Check(plans, o.c.request, o.c.parts, {.in_place = in_place, .chunks = kPipeline.chunks});
    if (!proof.ok() || !CheckProgress(plans, pipelines).empty()) {
      ++rejected;
      continue;
    }
    ASSERT_EQ(RunMutant(o, plans, proof, in_place), "")
        << "mutant " << i << " of " << CollectiveName(o.c.request.kind);
  }
  RecordProperty("rejected", rejected);
  RecordProperty("accepted", kMutants - rejected);
  std::cout << rejected << " rejected, " << kMutants - rejected << " accepted and identical\n";
  EXPECT_GT(rejected, kMutants / 2);
  EXPECT_LT(rejected, kMutants);
}

}  // namespace
}  // namespace zpp
