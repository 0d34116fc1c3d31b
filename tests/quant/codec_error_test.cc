// Error statistics, and the errors that the formats promise on known distributions.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/quant/codec_cases.h"

namespace zpp::testing {
namespace {

ErrorStats StatsOf(const QuantSpec& spec, std::span<const float> x) {
  ErrorStats stats;
  const int64_t elems = static_cast<int64_t>(x.size());
  std::vector<std::byte> payload(static_cast<size_t>(PayloadBytes(spec, elems)));
  EXPECT_TRUE(Encode(spec, {DType::kF32, x.data(), elems}, payload, {}, &stats).ok());
  EXPECT_EQ(payload, EncodeF32(spec, x));  // statistics change no byte
  return stats;
}

double ErrorOf(const char* spec, std::span<const float> x) {
  return StatsOf(*ParseQuantSpec(spec), x).relative_error();
}

TEST(CodecError, OnNormalValues) {
  const std::vector<float> x = Make(Pattern::kNormal, 1 << 20, 1);
  EXPECT_LE(ErrorOf("int4/128/linear", x), 0.105);
  EXPECT_LE(ErrorOf("int4/128/sqrt", x), 0.112);
  EXPECT_LE(ErrorOf("int8/256", x), 0.0073);
  EXPECT_GE(ErrorOf("int4/128/linear", x), 0.095);
  EXPECT_GE(ErrorOf("int8/256", x), 0.006);
}

std::vector<float> StudentT3(size_t elems) {
  std::mt19937_64 rng(1);
  std::student_t_distribution<float> student(3);
  std::vector<float> x(elems);
  for (float& value : x) value = student(rng);
  return x;
}

TEST(CodecError, OnHeavyTails) {
  const std::vector<float> x = StudentT3(1 << 20);
  EXPECT_LE(ErrorOf("int4/128/sqrt", x), 0.13);
  EXPECT_NEAR(ErrorOf("int4/128/linear", x), 0.20, 0.03);
}

// The table of quant/README.md.
TEST(CodecError, IsWhatTheReadmeSays) {
  struct Row {
    const char* spec;
    double normal, student;
  };
  constexpr Row kRows[] = {{"int8/256", 0.0070, 0.0175},
                           {"int4/128/linear", 0.103, 0.199},
                           {"int4/128/sqrt", 0.110, 0.127},
                           {"int4/128/linear/stochastic", 0.166, 0.332}};
  const std::vector<float> normal = Make(Pattern::kNormal, 1 << 20, 1);
  const std::vector<float> student = StudentT3(1 << 20);
  for (const Row& row : kRows) {
    EXPECT_NEAR(ErrorOf(row.spec, normal), row.normal, 0.01 * row.normal) << row.spec;
    EXPECT_NEAR(ErrorOf(row.spec, student), row.student, 0.03 * row.student) << row.spec;
  }
}

TEST(CodecError, StatisticsEqualANaiveCount) {
  for (const char* text : {"int8", "int4", "int4/sqrt/32", "none/bf16", "none/fp16"}) {
    const QuantSpec spec = *ParseQuantSpec(text);
    std::vector<float> x = Make(Pattern::kNormal, 5001, 2);
    for (size_t i = 0; i < x.size(); i += 7) x[i] = 0;
    const std::vector<float> y = DecodeF32(spec, EncodeF32(spec, x), 5001);
    double error = 0, value = 0, worst = 0;
    int64_t nonzero = 0, zeroed = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double difference = static_cast<double>(y[i]) - x[i];
      error += difference * difference;
      value += static_cast<double>(x[i]) * x[i];
      worst = std::fmax(worst, std::fabs(difference));
      nonzero += x[i] != 0;
      zeroed += x[i] != 0 && y[i] == 0;
    }
    const ErrorStats stats = StatsOf(spec, x);
    EXPECT_NEAR(stats.sum_squared_error, error, 1e-9 * error) << text;
    EXPECT_NEAR(stats.sum_squared_value, value, 1e-9 * value);
    EXPECT_EQ(stats.max_abs_error, worst);
    EXPECT_EQ(stats.nonzero, nonzero);
    EXPECT_EQ(stats.zeroed, zeroed);
    EXPECT_EQ(stats.nonfinite, 0);
  }
}

TEST(CodecError, ClippedAreThoseBeyondTheShortSide) {
  std::vector<float> x(32, 0.5f);
  x[0] = -8;     // code -8, so that 7 is the last level above
  x[1] = 7.4f;   // within half a step of 7
  x[2] = 7.6f;   // beyond
  x[3] = -7.9f;  // the long side
  EXPECT_EQ(StatsOf(*ParseQuantSpec("int4/32"), x).clipped, 1);
  EXPECT_EQ(StatsOf(*ParseQuantSpec("int8/32"), x).clipped, 0);
}

TEST(CodecError, NonfiniteAreCountedAndLeftOutOfTheSums) {
  std::vector<float> x = Make(Pattern::kNormal, 512, 2);
  x[3] = INFINITY;
  x[4] = NAN;
  const ErrorStats stats = StatsOf(QuantSpec::Int8(), x);
  EXPECT_EQ(stats.nonfinite, 2);
  EXPECT_TRUE(std::isfinite(stats.sum_squared_error));
  EXPECT_EQ(stats.nonzero, 256);  // the second block
}

TEST(CodecError, PiecesShareOneStatistics) {
  const std::vector<float> x = Make(Pattern::kNormal, 4096, 2);
  ErrorStats whole = StatsOf(QuantSpec::Int8(), x);
  ErrorStats merged = StatsOf(QuantSpec::Int8(), std::span(x).first(1024));
  merged.Merge(StatsOf(QuantSpec::Int8(), std::span(x).subspan(1024)));
  EXPECT_NEAR(merged.relative_error(), whole.relative_error(), 1e-12);
  EXPECT_EQ(merged.max_abs_error, whole.max_abs_error);
  EXPECT_EQ(ErrorStats().relative_error(), 0);
}

}  // namespace
}  // namespace zpp::testing
