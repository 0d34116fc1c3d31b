// The price of a plan: classes against all ranks, hand counts, and figures of the pipeline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/plan/simulator.h"
#include "quant/wire.h"
#include "tests/collectives/plan_cases.h"

namespace zpp {
namespace {

using test::Flavor;
using testing::HasSubstr;

Fabric MakeFabric(int tiers, double codec_bytes_per_s = 600e9) {
  Fabric fabric;
  fabric.tier = {{2e-6, 100e9}, {10e-6, 12.5e9}, {20e-6, 12.5e9}, {20e-6, 10e9}};
  fabric.tier.resize(static_cast<size_t>(tiers));
  fabric.codec_bytes_per_s = codec_bytes_per_s;
  return fabric;
}

// Ranks of one class load links and codec alike: every rank's plan against its class's.
TEST(PlanSimulatorTest, ClassesStandForTheirRanks) {
  for (int world : {1, 2, 5, 12, 24, 33}) {
    for (int which = 0; which < test::kLayouts; ++which) {
      const test::Layout layout = test::MakeLayout(which, world);
      for (CollectiveKind kind : test::kAllKinds) {
        for (Flavor flavor : {Flavor::kPlain, Flavor::kCompressed, Flavor::kFlat, Flavor::kOneShot,
                              Flavor::kWideMean16}) {
          if (!test::Applies(flavor, kind)) continue;
          test::Case c = test::MakeCase(layout.topology, kind, flavor, 0);
          const std::vector<int64_t> equal(static_cast<size_t>(world), 1024);
          if (kind != CollectiveKind::kAllToAll && kind != CollectiveKind::kBroadcast) {
            c.parts = Partition::Sized(equal, 256);
          }
          const Fabric fabric = MakeFabric(layout.topology.tiers());
          const std::vector<int32_t> classes = SymmetryClasses(c.request);
          std::vector<std::vector<StageLoad>> of_class(static_cast<size_t>(world));
          const std::vector<Plan> plans = std::move(MakeAllPlans(c.request)).value();
          for (const Plan& plan : plans) {
            const size_t at = static_cast<size_t>(classes[static_cast<size_t>(plan.rank)]);
            const std::vector<StageLoad> loads = LoadsOf(plan, c.parts, fabric, 2);
            if (of_class[at].empty()) of_class[at] = loads;
            ASSERT_EQ(loads, of_class[at])
                << CollectiveName(kind) << ", " << test::FlavorName(flavor) << ", rank "
                << plan.rank << " of " << world << ", " << layout.name;
          }
        }
      }
    }
  }
}

// What leaves the busiest node per direction, counted from the messages of all ranks.
double BusiestNode(const test::Case& c) {
  const Topology& topology = *c.request.topology;
  const size_t nodes = static_cast<size_t>(topology.num_nodes());
  std::vector<double> out(nodes, 0), in(nodes, 0);
  const std::vector<Plan> plans = std::move(MakeAllPlans(c.request)).value();
  for (const Plan& plan : plans) {
    for (const Message& send : plan.sends) {
      if (send.tier == 0) continue;
      const double bytes = static_cast<double>(SpanBytes(plan, c.parts, send.data, 0, 1));
      out[static_cast<size_t>(topology.NodeOf(plan.rank))] += bytes;
      in[static_cast<size_t>(topology.NodeOf(send.peer))] += bytes;
    }
  }
  return std::max(*std::max_element(out.begin(), out.end()),
                  *std::max_element(in.begin(), in.end()));
}

// One exchange across nodes: its price counts the same port as the sum over all plans.
TEST(PlanSimulatorTest, PortBytesAreThoseOfAllPlans) {
  for (int which : {1, 2, 3, 4, 6}) {
    const test::Layout layout = test::MakeLayout(which, 24);
    for (CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter}) {
      const test::Case c = test::MakeCase(layout.topology, kind, Flavor::kCompressed, 24 * 2560);
      const Price price =
          std::move(PriceOf(c.request, c.parts, {}, MakeFabric(layout.topology.tiers()))).value();
      EXPECT_DOUBLE_EQ(price.port_bytes[1], BusiestNode(c)) << layout.name;
    }
  }
}

TEST(PlanSimulatorTest, ARegularTopologyNeedsOnePlan) {
  const int fanout[] = {8, 4, 2};
  const Topology topology = std::move(Topology::Regular(fanout)).value();
  const test::Case c =
      test::MakeCase(topology, CollectiveKind::kAllReduce, Flavor::kCompressed, 1 << 20);
  EXPECT_EQ(std::move(PriceOf(c.request, c.parts, {}, MakeFabric(3))).value().plans_built, 1);
}

// Encode, one message, decode: the sum by hand.
TEST(PlanSimulatorTest, TwoRanksByHand) {
  const Topology topology = Topology::Flat(2);
  const int64_t elems = 1 << 20;
  const test::Case c =
      test::MakeCase(topology, CollectiveKind::kAllGather, Flavor::kCompressed, 2 * elems);
  Fabric fabric = MakeFabric(1, 10e9);
  fabric.op_s = fabric.start_s = fabric.message_s = 0;
  const Price price = std::move(PriceOf(c.request, c.parts, {}, fabric)).value();
  const double plain = 4.0 * elems,
               coded = static_cast<double>(MessageBytes(QuantSpec::Int8(128), elems));
  const double codec = (plain + coded) / 10e9;
  // The own part is decoded while the bytes travel.
  const double travels = std::max(codec, coded / 100e9 + 2e-6);
  EXPECT_NEAR(price.seconds, codec + travels + codec, 1e-12);
  EXPECT_NEAR(price.codec_s, 3 * codec, 1e-12);
  EXPECT_DOUBLE_EQ(price.port_bytes[0], coded);
}

double AllReduceSeconds(const Topology& topology, const Pipeline& pipeline, double codec) {
  PlanRequest q;
  q.topology = &topology;
  q.kind = CollectiveKind::kAllReduce;
  q.user = QuantSpec::None(DType::kBF16);
  q.hop = {QuantSpec::Int8(), QuantSpec::Int4(Code::kLinear)};
  q.gather = QuantSpec::Int8();
  const Partition parts = Partition::Even(int64_t{1} << 28, topology.world(), 256);
  Fabric fabric = MakeFabric(2, codec);
  fabric.message_s = 0;
  fabric.op_s = fabric.start_s = 5e-6;
  return std::move(PredictSeconds(q, parts, pipeline, fabric)).value();
}

// 256 Mi bf16 elements on 4 x 8 ranks: chunks and two tickets in flight keep the link full, lanes
// bound it.
TEST(PlanSimulatorTest, PipeliningHidesCodecAndInnerHops) {
  const int fanout[] = {8, 4};
  const Topology topology = std::move(Topology::Regular(fanout)).value();
  const double whole = AllReduceSeconds(topology, {1, 1, 1}, 600e9);
  const double full = AllReduceSeconds(topology, {32, 2, 9}, 600e9);
  EXPECT_NEAR(full, 24.8e-3, 0.03 * 24.8e-3);
  EXPECT_GT(whole, 1.2 * full);
  double last = 1e9;
  for (int lanes : {1, 2, 4, 8}) {
    const double seconds = AllReduceSeconds(topology, {32, 2, lanes}, 600e9);
    EXPECT_LT(seconds, last) << lanes << " lanes";
    last = seconds;
  }
  EXPECT_LT(AllReduceSeconds(topology, {32, 2, 9}, 600e9),
            AllReduceSeconds(topology, {32, 1, 9}, 600e9));
}

TEST(PlanSimulatorTest, OneShotWinsWhenRoundsCost) {
  const Topology topology = Topology::Flat(4);
  auto seconds = [&](Flavor flavor, int64_t elems) {
    const test::Case c = test::MakeCase(topology, CollectiveKind::kAllReduce, flavor, elems);
    return std::move(PredictSeconds(c.request, c.parts, {}, MakeFabric(1))).value();
  };
  EXPECT_LT(seconds(Flavor::kOneShotPlain, 2), seconds(Flavor::kPlain, 2));
  EXPECT_GT(seconds(Flavor::kOneShotPlain, 64 << 20), seconds(Flavor::kPlain, 64 << 20));
}

TEST(PlanSimulatorTest, ABarrierCostsLatencies) {
  const Topology topology = std::move(Topology::EvenNodes(4, 2)).value();
  const test::Case c = test::MakeCase(topology, CollectiveKind::kBarrier, Flavor::kPlain, 0);
  const Price price = std::move(PriceOf(c.request, c.parts, {}, MakeFabric(2))).value();
  EXPECT_GT(price.seconds, 20e-6);
  EXPECT_LT(price.seconds, 40e-6);
}

TEST(PlanSimulatorTest, BadInputIsOneSentence) {
  const Topology topology = Topology::Flat(2);
  const test::Case c = test::MakeCase(topology, CollectiveKind::kAllGather, Flavor::kPlain, 8);
  const auto why = [&](const Fabric& fabric, const Pipeline& pipeline) {
    return PriceOf(c.request, c.parts, pipeline, fabric).status().message();
  };
  EXPECT_THAT(why(MakeFabric(2), {}), HasSubstr("2 links for 1 tiers"));
  EXPECT_THAT(why({.tier = {{}}}, {}), HasSubstr("a link without a speed"));
  EXPECT_THAT(why(MakeFabric(1), {.chunks = 0}), HasSubstr("begin at 1"));
  Fabric slow = MakeFabric(1);
  slow.codec_bytes_per_s = 0;
  EXPECT_THAT(why(slow, {}), HasSubstr("a codec without a speed"));
  EXPECT_GT(FabricOf(topology).tier[0].bytes_per_s, 0);
}

// Fewer parts than the plan names would be read beyond their end.
TEST(PlanSimulatorTest, OtherPartsThanTheCollectiveMovesAreRefused) {
  const Topology topology = std::move(Topology::EvenNodes(6, 2)).value();
  for (CollectiveKind kind : test::kAllKinds) {
    if (kind == CollectiveKind::kBarrier) continue;
    const test::Case c = test::MakeCase(topology, kind, Flavor::kPlain, 720);
    ASSERT_TRUE(PriceOf(c.request, c.parts, {}, MakeFabric(2)).ok()) << CollectiveName(kind);
    for (const Partition& parts : {Partition(), Partition::Even(720, 5, 1),
                                   Partition::Even(720, 7, 1), Partition::Pairwise(20, 5, 1)}) {
      const Result<Price> price = PriceOf(c.request, parts, {}, MakeFabric(2));
      EXPECT_EQ(price.status().code(), StatusCode::kInvalidArgument) << CollectiveName(kind);
      EXPECT_THAT(price.status().message(), HasSubstr("not " + std::to_string(parts.parts())))
          << CollectiveName(kind);
    }
  }
}

}  // namespace
}  // namespace zpp
