// How plans read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/plan/plan.h"

namespace zpp {
namespace {

PlanRequest Compressed(const Topology& topology, CollectiveKind kind) {
  PlanRequest q;
  q.topology = &topology;
  q.kind = kind;
  q.hop.assign(static_cast<size_t>(topology.tiers()), QuantSpec::Int4(Code::kSqrt));
  q.hop[0] = QuantSpec::Int8();
  q.gather = QuantSpec::Int8();
  return q;
}

std::string TextOf(const PlanRequest& q, int rank) {
  return ToText(std::move(MakePlan(q, rank)).value(), *q.topology);
}

TEST(PlanPrintTest, AllReduce) {
  const int sizes[] = {2, 2, 1};
  const Topology topology = std::move(Topology::Nodes(sizes)).value();
  EXPECT_EQ(TextOf(Compressed(topology, CollectiveKind::kAllReduce), 1),
            R"(all_reduce, rank 1 of 5 (node 0)
why: reduce-scatter, then all-gather: 2 tiers, innermost first: what crosses a slow link has been summed before; fp32 sums in rank order, sent as int8/256 at tier 0, int4/128/sqrt at tier 1; gathered in one encoding for all hops (int8/256), never recoded on the way
stage 0
  encode  in{1,3,0,2,4} -> s1{1,3,0,2,4} int8/256
  send    s1{0,2,4} int8/256 to rank 0 (node 0), tier 0
  receive s2{1,3} int8/256 from rank 0 (node 0), tier 0
stage 1
  sum     s2{1,3} + s1{1,3} -> s3{1,3} int4/128/sqrt
  send    s3{3} int4/128/sqrt to rank 3 (node 1), tier 1
  receive s4{1} int4/128/sqrt from rank 4 (node 2), tier 1
  receive s5{1} int4/128/sqrt from rank 3 (node 1), tier 1
stage 2
  sum     s3{1} + s5{1} + s4{1} -> s7{1} int8/256
  send    s7{1} int8/256 to rank 4 (node 2), tier 1
  send    s7{1} int8/256 to rank 3 (node 1), tier 1
  receive s7{3} int8/256 from rank 3 (node 1), tier 1
  meanwhile decode s7{1} -> out{1} none/fp32
stage 3
  send    s7{1,3} int8/256 to rank 0 (node 0), tier 0
  receive s7{0,2,4} int8/256 from rank 0 (node 0), tier 0
  meanwhile decode s7{3} -> out{3} none/fp32
stage 4
  decode  s7{0,2,4} -> out{0,2,4} none/fp32
)");
}

TEST(PlanPrintTest, AllGather) {
  const Topology topology = std::move(Topology::EvenNodes(4, 2)).value();
  EXPECT_EQ(TextOf(Compressed(topology, CollectiveKind::kAllGather), 0),
            R"(all_gather, rank 0 of 4 (node 0)
why: 2 tiers, outermost first: every byte crosses each slow link once; one encoding for all hops (int8/256), never recoded on the way
stage 0
  encode  in{0} -> s2{0} int8/256
  send    s2{0} int8/256 to rank 2 (node 1), tier 1
  receive s2{2} int8/256 from rank 2 (node 1), tier 1
  meanwhile decode s2{0} -> out{0} none/fp32
stage 1
  send    s2{0,2} int8/256 to rank 1 (node 0), tier 0
  receive s2{1,3} int8/256 from rank 1 (node 0), tier 0
  meanwhile decode s2{2} -> out{2} none/fp32
stage 2
  decode  s2{1,3} -> out{1,3} none/fp32
)");
}

TEST(PlanPrintTest, PlainReduceScatterOfOneTier) {
  const Topology topology = Topology::Flat(3);
  PlanRequest q;
  q.topology = &topology;
  q.kind = CollectiveKind::kReduceScatter;
  q.user = QuantSpec::None(DType::kF16);
  q.hop = {q.user};
  q.op = ReduceOp::kAvg;
  EXPECT_EQ(TextOf(q, 2), R"(reduce_scatter, rank 2 of 3
why: one tier: every pair directly, in one round; fp32 sums in rank order, sent as none/fp16 at tier 0
stage 0
  send    in{0} none/fp16 to rank 0, tier 0
  send    in{1} none/fp16 to rank 1, tier 0
  receive s1{2} none/fp16 from rank 1, tier 0
  receive s2{2} none/fp16 from rank 0, tier 0
stage 1
  mean of s2{2} + s1{2} + in{2} -> out{2} none/fp16
)");
}

TEST(PlanPrintTest, Barrier) {
  const Topology topology = Topology::Flat(3);
  PlanRequest q;
  q.topology = &topology;
  EXPECT_EQ(TextOf(q, 0), R"(barrier, rank 0 of 3
why: dissemination: round i signals the rank 2^i further on, no bytes
stage 0
  send    a signal to rank 1, tier 0
  receive a signal from rank 2, tier 0
stage 1
  send    a signal to rank 2, tier 0
  receive a signal from rank 1, tier 0
)");
}

TEST(PlanPrintTest, LongListsAreShortened) {
  const int fanout[] = {8, 32};
  const Topology topology = std::move(Topology::Regular(fanout)).value();
  const std::string text = TextOf(Compressed(topology, CollectiveKind::kAllReduce), 77);
  EXPECT_THAT(text, testing::HasSubstr(".. and 23 more"));
  EXPECT_THAT(text, testing::HasSubstr(",.. 256 in all}"));
  EXPECT_LT(text.size(), 8'000u);
}

}  // namespace
}  // namespace zpp
