// Plans run on real bytes give the right values, the same bits in every chunking and timing, and
// send what was planned.
#include <gtest/gtest.h>

#include <cmath>

#include "collectives/plan/checker.h"
#include "quant/codec.h"
#include "tests/collectives/plan_cases.h"
#include "tests/collectives/plan_interpreter.h"

namespace zpp {
namespace {

using test::Bytes;
using test::Case;
using test::Flavor;

// Small integers that tell rank and index: exact in every type, and so are their sums.
float InputValue(int rank, int64_t index) {
  return static_cast<float>((index * 37 + int64_t{rank} * 11 + index / 97) % 13 - 6);
}

Bytes MakeInput(const Plan& plan, const Case& c) {
  const int64_t elems = test::InputElems(plan, c.parts, c.request);
  std::vector<float> values(static_cast<size_t>(elems));
  for (int64_t i = 0; i < elems; ++i) values[static_cast<size_t>(i)] = InputValue(plan.rank, i);
  Bytes bytes(static_cast<size_t>(elems * SizeOf(c.request.user.plain)));
  EXPECT_TRUE(Encode(c.request.user, {DType::kF32, values.data(), elems}, bytes).ok());
  return bytes;
}

std::vector<Bytes> MakeInputs(const std::vector<Plan>& plans, const Case& c) {
  std::vector<Bytes> inputs;
  for (const Plan& plan : plans) inputs.push_back(MakeInput(plan, c));
  return inputs;
}

// What output element `index` of a rank should be, naively.
double Expected(const Plan& plan, const Case& c, int64_t index) {
  const int world = plan.world;
  switch (c.request.kind) {
    case CollectiveKind::kAllGather: {
      int owner = 0;
      while (index >= c.parts.Offset(static_cast<PartId>(owner)) +
                          c.parts.Elems(static_cast<PartId>(owner))) {
        ++owner;
      }
      return InputValue(owner, index - c.parts.Offset(static_cast<PartId>(owner)));
    }
    case CollectiveKind::kReduceScatter:
      index += c.parts.Offset(static_cast<PartId>(plan.rank));
      [[fallthrough]];
    case CollectiveKind::kAllReduce: {
      double sum = 0;
      for (int r = 0; r < world; ++r) sum += static_cast<double>(InputValue(r, index));
      return c.request.op == ReduceOp::kAvg ? sum / world : sum;
    }
    case CollectiveKind::kAllToAll: {
      const int64_t pair = c.parts.Elems(0);
      return InputValue(static_cast<int>(index / pair), plan.rank * pair + index % pair);
    }
    case CollectiveKind::kBroadcast:
      return InputValue(c.request.root, index);
    case CollectiveKind::kBarrier:
      break;
  }
  return 0;
}

// Inputs are within 6: what the encodings of a flavor may add to one contribution, and to the
// result.
double Tolerance(const Case& c, int world) {
  const double scale = c.request.op == ReduceOp::kAvg ? 1 : world;
  double error = 0;
  for (const QuantSpec& spec : c.request.hop) {
    if (spec.format == Format::kInt8) error += 6.0 / 127;
    if (spec.format == Format::kInt4) error += 6.0 * (1 - 49.0 / 64);
    if (spec.plain != c.request.user.plain) error += 6.0 / 256;  // narrower, at the worst
  }
  if (c.request.gather.plain != c.request.user.plain) error += 6.0 / 256;
  error += c.request.gather.compressed() ? 6.0 / 127 : 0;
  if (c.request.op == ReduceOp::kAvg) error += 6.0 / 64;  // rounding of quotients to 16 bits
  return error * 1.5 * scale;
}

void ExpectValues(const Plan& plan, const Case& c, const Bytes& output) {
  const int64_t elems = test::OutputElems(plan, c.parts);
  std::vector<float> values(static_cast<size_t>(elems));
  ASSERT_TRUE(Decode(c.request.user, output, {DType::kF32, values.data(), elems}).ok());
  const double tolerance = Tolerance(c, plan.world);
  const int64_t step = elems > 50'000 ? 37 : 1;
  for (int64_t i = 0; i < elems; i += step) {
    const double want = Expected(plan, c, i);
    const double have = static_cast<double>(values[static_cast<size_t>(i)]);
    ASSERT_LE(std::fabs(have - want), tolerance) << "rank " << plan.rank << ", element " << i;
  }
}

bool SameOnAllRanks(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kBroadcast;
}

constexpr Pipeline kPipelines[] = {{.chunks = 1, .depth = 1, .lanes = 1},
                                   {.chunks = 5, .depth = 2, .lanes = 4},
                                   {.chunks = 3, .depth = 1, .lanes = 9}};

void RunCase(const Case& c, int runs) {
  const Result<std::vector<Plan>> plans = MakeAllPlans(c.request);
  ASSERT_TRUE(plans.ok()) << plans.status().ToString();
  const std::vector<Bytes> inputs = MakeInputs(*plans, c);
  std::vector<Bytes> first;
  for (int run = 0; run < runs; ++run) {
    const Pipeline& pipeline = kPipelines[run % 3];
    const bool in_place = run % 2 == 1 && c.request.kind != CollectiveKind::kAllToAll;
    const test::Outcome outcome =
        test::Interpret(*plans, c.request, c.parts, inputs,
                        {pipeline, static_cast<uint32_t>(run * 77 + 5), in_place});
    ASSERT_EQ(outcome.fault, "");
    EXPECT_LE(outcome.max_lanes, pipeline.lanes);
    const Proof proof =
        Check(*plans, c.request, c.parts, {.in_place = in_place, .chunks = pipeline.chunks});
    ASSERT_TRUE(proof.ok()) << proof.faults[0];
    ASSERT_EQ(outcome.tier_bytes, proof.tier_bytes) << "sent bytes are not the planned ones";
    ASSERT_EQ(outcome.messages, proof.messages * pipeline.chunks);
    if (run == 0) {
      first = outcome.output;
      for (size_t r = 0; r < first.size(); ++r) {
        ExpectValues((*plans)[r], c, first[r]);
        if (SameOnAllRanks(c.request.kind)) {
          ASSERT_EQ(first[r], first[0]) << "rank " << r << " differs from rank 0";
        }
      }
    }
    ASSERT_EQ(outcome.output, first) << "another chunking or timing gives other bits";
  }
}

void RunAll(const Topology& topology, const std::string& name, int64_t elems, int runs) {
  for (CollectiveKind kind : test::kAllKinds) {
    for (Flavor flavor : test::kAllFlavors) {
      if (!test::Applies(flavor, kind)) continue;
      SCOPED_TRACE(std::string(CollectiveName(kind)) + ", " + test::FlavorName(flavor) + ", " +
                   std::to_string(elems) + " elements, " + name);
      RunCase(test::MakeCase(topology, kind, flavor, elems), runs);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

class PlanRun : public testing::TestWithParam<int64_t> {};

TEST_P(PlanRun, BitsValuesAndWireBytes) {
  const int64_t elems = GetParam();
  for (int world : {1, 2, 4, 7}) {
    for (int which : {0, 1, 2, 6, 8}) {
      const test::Layout layout = test::MakeLayout(which, world);
      RunAll(layout.topology, layout.name + ", world " + std::to_string(world), elems, 3);
      if (HasFatalFailure()) return;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Elems, PlanRun, testing::Values(0, 1, 2, 7, 127, 128, 129, 4097));

TEST(PlanRunTest, AMillionElements) {
  const Topology topology = std::move(Topology::EvenNodes(4, 2)).value();
  RunAll(topology, "2 x 2", 1'000'003, 2);
  RunAll(test::MakeLayout(2, 4).topology, "1 + 2 + 1", 1'000'003, 1);
}

TEST(PlanRunTest, FourTiers) {
  const test::Layout layout = test::MakeLayout(9, 16);
  RunAll(layout.topology, layout.name, 5'000, 2);
  const int fanout[] = {2, 2, 2, 2};
  RunAll(std::move(Topology::Regular(fanout)).value(), "2 x 2 x 2 x 2", 9'001, 2);
}

// fp16 sums of large values overflow; their mean must not.
TEST(PlanRunTest, AMeanOfLargeHalvesStaysInRange) {
  for (int which : {0, 1, 2, 6}) {
    const test::Layout layout = test::MakeLayout(which, 5);
    const Case c =
        test::MakeCase(layout.topology, CollectiveKind::kAllReduce, Flavor::kMean16, 900);
    const std::vector<Plan> plans = std::move(MakeAllPlans(c.request)).value();
    const std::vector<float> large(static_cast<size_t>(c.parts.TotalElems()), 60'000.0f);
    Bytes input(large.size() * 2);
    ASSERT_TRUE(Encode(c.request.user,
                       {DType::kF32, large.data(), static_cast<int64_t>(large.size())}, input)
                    .ok());
    const std::vector<Bytes> inputs(5, input);
    const test::Outcome outcome = test::Interpret(plans, c.request, c.parts, inputs, {});
    ASSERT_EQ(outcome.fault, "");
    std::vector<float> mean(large.size());
    ASSERT_TRUE(Decode(c.request.user, outcome.output[0],
                       {DType::kF32, mean.data(), static_cast<int64_t>(mean.size())})
                    .ok());
    for (float x : mean) ASSERT_NEAR(x, 60'000.0f, 64.0f) << layout.name;
  }
}

}  // namespace
}  // namespace zpp
