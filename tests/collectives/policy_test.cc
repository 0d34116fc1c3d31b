// Which encodings a policy becomes.
#include "collectives/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "collectives/encoding_choice.h"
#include "quant/codec.h"

namespace zpp {
namespace {

using testing::HasSubstr;

constexpr int64_t kLarge = 1 << 24;

Topology Nodes(int a, int b) {
  const std::vector<int> sizes = {a, b};
  return *Topology::Nodes(sizes);
}

EncodingChoice Choose(const CollectivePolicy& policy, const Topology& topology, CollectiveKind kind,
                      int64_t elems = kLarge, DType dtype = DType::kF32) {
  return ChooseEncodings({&policy, &topology, kind, dtype, elems});
}

TEST(Policy, ErrorTableIsTheCodecs) {
  std::mt19937_64 engine(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(1 << 18);
  for (float& v : x) v = normal(engine);
  for (Format format : {Format::kInt8, Format::kInt4}) {
    for (Code code : {Code::kLinear, Code::kSqrt}) {
      if (format == Format::kInt8 && code == Code::kSqrt) continue;
      for (Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
        for (int32_t block = 32; block <= 2048; block *= 2) {
          const QuantSpec spec{
              .format = format, .code = code, .rounding = rounding, .block_elems = block};
          const auto elems = static_cast<int64_t>(x.size());
          std::vector<std::byte> payload(static_cast<size_t>(PayloadBytes(spec, elems)));
          ErrorStats stats;
          ASSERT_TRUE(Encode(spec, {DType::kF32, x.data(), elems}, payload, {}, &stats).ok());
          EXPECT_NEAR(ExpectedRelativeError(spec) / stats.relative_error(), 1, 0.03)
              << ToString(spec);
        }
      }
    }
  }
  EXPECT_EQ(ExpectedRelativeError(QuantSpec::None()), 0);
}

TEST(Policy, LosslessUnlessAsked) {
  for (auto kind :
       {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce}) {
    const auto choice = Choose({}, Nodes(2, 2), kind, kLarge, DType::kBF16);
    EXPECT_FALSE(choice.compressed);
    EXPECT_EQ(choice.gather, QuantSpec::None(DType::kBF16));
    for (const QuantSpec& spec : choice.hop) EXPECT_EQ(spec, QuantSpec::None(DType::kBF16));
  }
}

TEST(Policy, AHopPerTierAndOneEncodingForAGather) {
  const auto policy = CollectivePolicy::Gradients();
  auto choice = Choose(policy, Nodes(2, 2), CollectiveKind::kReduceScatter);
  EXPECT_EQ(choice.hop[0], QuantSpec::Int8());
  EXPECT_EQ(choice.hop[1], QuantSpec::Int4(Code::kSqrt));
  EXPECT_EQ(Choose(policy, Nodes(2, 2), CollectiveKind::kAllGather).gather,
            QuantSpec::Int4(Code::kSqrt));
  // Without nodes the only hop is the inner one, unless flat says that it is all one.
  EXPECT_EQ(Choose(policy, Topology::Flat(4), CollectiveKind::kAllGather).gather,
            QuantSpec::Int8());
  CollectivePolicy flat = policy;
  flat.flat = true;
  EXPECT_EQ(Choose(flat, Topology::Flat(4), CollectiveKind::kAllGather).gather,
            QuantSpec::Int4(Code::kSqrt));
  EXPECT_EQ(Choose(flat, Nodes(2, 2), CollectiveKind::kReduceScatter).hop.back(),
            QuantSpec::Int4(Code::kSqrt));
  // Nodes of one rank have no inner hop.
  EXPECT_EQ(Choose(policy, Nodes(1, 1), CollectiveKind::kAllGather).gather,
            QuantSpec::Int4(Code::kSqrt));
}

TEST(Policy, OnlyFloatsAndOnlySumsAndGathersAreCompressed) {
  const auto policy = CollectivePolicy::Weights();
  EXPECT_FALSE(
      Choose(policy, Nodes(2, 2), CollectiveKind::kAllGather, kLarge, DType::kByte).compressed);
  EXPECT_FALSE(Choose(policy, Nodes(2, 2), CollectiveKind::kBroadcast).compressed);
  EXPECT_FALSE(Choose(policy, Nodes(2, 2), CollectiveKind::kAllToAll).compressed);
  EXPECT_FALSE(Choose(policy, Topology::Flat(1), CollectiveKind::kAllReduce).compressed);
}

TEST(Policy, SmallVectorsAreNotCompressed) {
  CollectivePolicy policy = CollectivePolicy::Weights();
  const int64_t least = kDefaultMinCompress_bytes / 4;
  EXPECT_TRUE(Choose(policy, Nodes(2, 2), CollectiveKind::kAllReduce, least).compressed);
  const auto small = Choose(policy, Nodes(2, 2), CollectiveKind::kAllReduce, least - 1);
  EXPECT_FALSE(small.compressed);
  EXPECT_THAT(small.why, HasSubstr("not compressed below 65536 bytes"));
  policy.min_compress_bytes = 0;
  EXPECT_TRUE(Choose(policy, Nodes(2, 2), CollectiveKind::kAllReduce, 1).compressed);
}

TEST(Policy, TheLinkModelDecidesHopByHop) {
  Topology topology = Nodes(2, 2);
  // Shared memory of 50 GB/s, a network of 1 Gbit/s.
  const std::vector<LinkModel> links = {{1e-6, 50e9}, {50e-6, 0.125e9}};
  ASSERT_TRUE(topology.SetLinks(links).ok());
  const auto policy = CollectivePolicy::Gradients();
  const auto choice = Choose(policy, topology, CollectiveKind::kReduceScatter);
  EXPECT_FALSE(choice.hop[0].compressed());
  EXPECT_TRUE(choice.hop[1].compressed());
  EXPECT_THAT(choice.why, HasSubstr("does not pay on tier 0"));
  EXPECT_FALSE(Choose(policy, topology, CollectiveKind::kReduceScatter, 64).compressed);
  // A declared size overrides the model.
  CollectivePolicy always = policy;
  always.min_compress_bytes = 0;
  EXPECT_TRUE(Choose(always, topology, CollectiveKind::kReduceScatter).hop[0].compressed());
}

TEST(Policy, TooCoarseGivesWayToTheNextFiner) {
  CollectivePolicy policy = CollectivePolicy::Gradients();
  policy.max_rel_error = 0.2;
  EXPECT_EQ(Choose(policy, Nodes(2, 2), CollectiveKind::kAllGather).gather,
            QuantSpec::Int4(Code::kSqrt));
  policy.max_rel_error = 0.05;
  const auto finer = Choose(policy, Nodes(2, 2), CollectiveKind::kAllGather);
  EXPECT_EQ(finer.gather, QuantSpec::Int8());
  EXPECT_THAT(finer.why, HasSubstr("gives way to int8"));
  policy.max_rel_error = 0.001;
  EXPECT_FALSE(Choose(policy, Nodes(2, 2), CollectiveKind::kAllGather).compressed);
}

TEST(Policy, WidePartialSumsAreFp32AfterTheFirstHop) {
  const CollectivePolicy policy{.wide_partial_sums = true};
  const auto choice =
      Choose(policy, Nodes(2, 2), CollectiveKind::kReduceScatter, kLarge, DType::kF16);
  EXPECT_EQ(choice.hop[0], QuantSpec::None(DType::kF16));
  EXPECT_EQ(choice.hop[1], QuantSpec::None(DType::kF32));
}

TEST(Policy, SmallAllReducesTakeOneRoundWhereTheOrderOfTheSumIsTheSame) {
  EXPECT_TRUE(Choose({}, Topology::Flat(4), CollectiveKind::kAllReduce, 2).one_shot);
  EXPECT_FALSE(Choose({}, Topology::Flat(4), CollectiveKind::kAllReduce, kLarge).one_shot);
  EXPECT_FALSE(Choose({}, Nodes(2, 2), CollectiveKind::kAllReduce, 2).one_shot);
  EXPECT_TRUE(Choose({}, Nodes(1, 1), CollectiveKind::kAllReduce, 2).one_shot);
  EXPECT_FALSE(Choose({}, Topology::Flat(4), CollectiveKind::kReduceScatter, 2).one_shot);
}

}  // namespace
}  // namespace zpp
