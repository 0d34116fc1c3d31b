// The judge of `zpp bw` must let good results pass and must find every kind of bad one.
#include "cli/bw_verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "quant/codec.h"
#include "quant/wire.h"

namespace zpp::cli {
namespace {

constexpr int kWorld = 4;
constexpr int64_t kCount = 4 * 3000;

Question Ask(const Topology& topology, CollectiveKind kind, const QuantSpec& spec, int rank = 0) {
  Question question;
  question.topology = &topology;
  question.kind = kind;
  question.rank = rank;
  question.count = kCount;
  question.hop.assign(static_cast<size_t>(topology.tiers()), spec);
  question.gather = spec;
  return question;
}

std::vector<float> Whole(const Values& values, int rank) {
  std::vector<float> x(kCount);
  values.Read(rank, 0, x);
  return x;
}

// What an all-gather gives: every share encoded and decoded.
std::vector<float> Gathered(const Values& values, const QuantSpec& spec) {
  std::vector<float> x = Whole(values, 0);
  const int64_t share = kCount / kWorld;
  for (int r = 0; r < kWorld; ++r) {
    float* part = x.data() + r * share;
    std::vector<std::byte> payload(static_cast<size_t>(PayloadBytes(spec, share)));
    EXPECT_TRUE(Encode(spec, {DType::kF32, part, share}, payload).ok());
    EXPECT_TRUE(Decode(spec, payload, {DType::kF32, part, share}).ok());
  }
  return x;
}

Verdict JudgeAll(const Question& question, const Values& values, const std::vector<float>& x) {
  return Judge(question, values, {DType::kF32, x.data(), static_cast<int64_t>(x.size())});
}

TEST(Judge, PassesAnExactGatherAndFindsOneWrongBit) {
  const Topology topology = Topology::Flat(kWorld);
  const Values values(DType::kF32);
  const Question question = Ask(topology, CollectiveKind::kAllGather, QuantSpec::None());
  std::vector<float> x = Whole(values, 0);
  const Verdict good = JudgeAll(question, values, x);
  EXPECT_EQ(good.wrong, 0);
  EXPECT_EQ(good.sum_squared_error, 0);
  x[777] = std::nextafter(x[777], 10.0f);
  const Verdict bad = JudgeAll(question, values, x);
  EXPECT_EQ(bad.wrong, 1);
  EXPECT_NE(bad.hash, good.hash);
}

TEST(Judge, PassesACodedGatherAndFindsWhatIsOutOfBounds) {
  const Topology topology = Topology::Flat(kWorld);
  const Values values(DType::kF32);
  for (const QuantSpec& spec :
       {QuantSpec::Int8(), QuantSpec::Int4(Code::kLinear), QuantSpec::Int4(Code::kSqrt)}) {
    const Question question = Ask(topology, CollectiveKind::kAllGather, spec);
    std::vector<float> x = Gathered(values, spec);
    const Verdict good = JudgeAll(question, values, x);
    EXPECT_EQ(good.wrong, 0) << ToString(spec);
    const double error = std::sqrt(good.sum_squared_error / good.sum_squared_value);
    EXPECT_GT(error, 0.004);
    EXPECT_LT(error, 0.12);
    x[5] += 2;
    x[kCount - 1] = NAN;
    EXPECT_EQ(JudgeAll(question, values, x).wrong, 2) << ToString(spec);
  }
}

TEST(Judge, FindsSwappedShares) {
  const Topology topology = Topology::Flat(kWorld);
  const Values values(DType::kF32);
  const QuantSpec spec = QuantSpec::Int8();
  std::vector<float> x = Gathered(values, spec);
  std::swap_ranges(x.begin(), x.begin() + kCount / kWorld, x.begin() + kCount / kWorld);
  const Verdict bad = JudgeAll(Ask(topology, CollectiveKind::kAllGather, spec), values, x);
  EXPECT_GT(bad.wrong, kCount / 4);
}

// The exact sum lies within any codec's bound; a contribution that is missing or there twice does
// not.
TEST(Judge, ReductionNeedsEveryContributionOnce) {
  const Topology topology = *Topology::EvenNodes(kWorld, 2);
  const Values values(DType::kF32);
  const int64_t share = kCount / kWorld;
  const int rank = 2;
  for (const QuantSpec& spec : {QuantSpec::None(), QuantSpec::Int8()}) {
    const Question question = Ask(topology, CollectiveKind::kReduceScatter, spec, rank);
    std::vector<float> sum(static_cast<size_t>(share), 0.0f);
    for (int r = 0; r < kWorld; ++r) {
      const std::vector<float> x = Whole(values, r);
      for (int64_t i = 0; i < share; ++i) sum[i] += x[rank * share + i];
    }
    EXPECT_EQ(JudgeAll(question, values, sum).wrong, 0) << ToString(spec);
    const std::vector<float> extra = Whole(values, 1);
    for (int64_t i = 0; i < share; ++i) sum[i] -= extra[rank * share + i];
    EXPECT_GT(JudgeAll(question, values, sum).wrong, share / 2) << ToString(spec);
  }
}

TEST(Judge, AverageIsNotTheSum) {
  const Topology topology = Topology::Flat(kWorld);
  const Values values(DType::kF32);
  Question question = Ask(topology, CollectiveKind::kAllReduce, QuantSpec::None());
  std::vector<float> sum(kCount, 0.0f);
  for (int r = 0; r < kWorld; ++r) {
    const std::vector<float> x = Whole(values, r);
    for (int64_t i = 0; i < kCount; ++i) sum[i] += x[i];
  }
  EXPECT_EQ(JudgeAll(question, values, sum).wrong, 0);
  question.op = ReduceOp::kAvg;
  EXPECT_GT(JudgeAll(question, values, sum).wrong, 0);
  for (float& v : sum) v /= kWorld;
  EXPECT_EQ(JudgeAll(question, values, sum).wrong, 0);
}

TEST(Judge, ANanInABlockMustMakeTheBlockNan) {
  std::vector<float> file(kCount);
  for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<float>(i % 97) - 48;
  file[300] = NAN;
  const Values values(DType::kF32, file, kWorld);
  const Topology topology = Topology::Flat(kWorld);
  const QuantSpec spec = QuantSpec::Int8();
  std::vector<float> x = Gathered(values, spec);
  const Question question = Ask(topology, CollectiveKind::kAllGather, spec);
  EXPECT_TRUE(std::isnan(x[300]));
  EXPECT_EQ(JudgeAll(question, values, x).wrong, 0);
  x[300] = 0;
  EXPECT_EQ(JudgeAll(question, values, x).wrong, 1);
}

TEST(Values, TellRankAndIndexAndTakeTheFileInTurns) {
  const Values made(DType::kF32);
  EXPECT_NE(Whole(made, 0), Whole(made, 1));
  double sum = 0, squares = 0;
  for (const float v : Whole(made, 3)) sum += v, squares += v * v;
  EXPECT_NEAR(sum / kCount, 0, 0.05);
  EXPECT_NEAR(squares / kCount, 1, 0.05);

  const Values filed(DType::kF32, {1, 2, 3, 4, 5, 6, 7, 8}, 4);
  std::vector<float> x(5);
  filed.Read(0, 6, x);
  EXPECT_EQ(x, (std::vector<float>{7, 8, 1, 2, 3}));
  filed.Read(1, 0, x);
  EXPECT_EQ(x, (std::vector<float>{3, 4, 5, 6, 7}));
}

TEST(Values, FillAndReadAgreeInEveryType) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Values values(dtype);
    std::vector<std::byte> bytes(static_cast<size_t>(100 * SizeOf(dtype)));
    values.Fill(2, 50, {dtype, bytes.data(), 100});
    std::vector<float> x(100);
    values.Read(2, 50, x);
    for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(ElementAt({dtype, bytes.data(), 100}, i), x[i]);
  }
}

}  // namespace
}  // namespace zpp::cli
