// The measurements behind `zpp bw codec`: which rows there are, and that bad options are refused.
#include "cli/codec_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/codec.h"

namespace zpp {
namespace {

CodecBenchArgs Quick(int64_t count) {
  CodecBenchArgs args;
  args.counts = {count};
  args.min_s = 0;
  return args;
}

TEST(CodecRows, EveryOpOfEverySpecAndType) {
  for (int64_t count : {1, 1000, 4097}) {
    const Result<std::vector<CodecRow>> rows = MeasureCodec(Quick(count));
    ASSERT_TRUE(rows.ok()) << rows.status().ToString();
    // fp32: 4 yardsticks and 3 x 4 ops; bf16: 4 and 3 x 3, as sums are fp32.
    EXPECT_EQ(rows->size(), 16u + 13u);
    for (const CodecRow& row : *rows) {
      EXPECT_TRUE(std::isfinite(row.gb_per_s) && row.gb_per_s > 0) << row.op;
      EXPECT_TRUE(std::isfinite(row.ratio) && row.ratio > 0) << row.op;
      EXPECT_TRUE(std::isfinite(row.of_roof) && row.of_roof > 0) << row.op;
      EXPECT_EQ(row.count, count);
    }
  }
}

TEST(CodecRows, ErrorsAreThoseOfTheData) {
  const std::vector<float> data = {1.0f, -1.0f, 0.0f, 1.0f};
  CodecBenchArgs args = Quick(4096);
  args.data = data;
  args.specs = {QuantSpec::Int8()};
  const Result<std::vector<CodecRow>> rows = MeasureCodec(args);
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->at(4).op, "encode");
  EXPECT_LT(rows->at(4).rel_error, 0.004);  // only the rounding of the scale
}

// The user's data may hold anything: blocks of NaN, sums that overflow, zeros, subnormals.
TEST(CodecRows, MeasuresWhateverTheDataHolds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kMost = std::numeric_limits<float>::max();
  const std::vector<std::vector<float>> inputs = {
      {0.0f}, {NAN}, {1e-42f, -1e-42f}, {kMost, -kMost}, {kMost / 5, 1.0f}, {1.0f, kInfinity}};
  for (const std::vector<float>& data : inputs) {
    std::vector<float> padded(700, 0.5f);
    std::copy(data.begin(), data.end(), padded.begin());
    for (std::span<const float> values :
         {std::span<const float>(data), std::span<const float>(padded)}) {
      CodecBenchArgs args = Quick(1000);
      args.data = values;
      args.dtypes = {DType::kF32};
      const Result<std::vector<CodecRow>> rows = MeasureCodec(args);
      EXPECT_TRUE(rows.ok()) << data[0] << ": " << rows.status().ToString();
    }
  }
}

// Nothing finite was encoded: that is no error of 0.
TEST(CodecRows, NoErrorIsToldOfNonfiniteData) {
  for (const float value : {NAN, std::numeric_limits<float>::infinity()}) {
    CodecBenchArgs args = Quick(1000);
    args.data = {&value, 1};
    const Result<std::vector<CodecRow>> rows = MeasureCodec(args);
    ASSERT_TRUE(rows.ok()) << rows.status().ToString();
    EXPECT_EQ(rows->at(4).op, "encode");
    EXPECT_TRUE(std::isnan(rows->at(4).rel_error));
  }
}

TEST(CodecRows, OneRowPerTarget) {
  CodecBenchArgs args = Quick(1000);
  args.all_targets = true;
  args.specs = {*ParseQuantSpec("int4/stochastic")};
  args.dtypes = {DType::kF16};
  const Result<std::vector<CodecRow>> rows = MeasureCodec(args);
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  for (std::string_view target : CodecTargets()) {
    EXPECT_EQ(std::count_if(rows->begin(), rows->end(),
                            [&](const CodecRow& row) { return row.target == target; }),
              3);
  }
  EXPECT_EQ(CurrentCodecTarget(), CodecTargets().front());
}

TEST(CodecRows, BadOptionsAreRefused) {
  CodecBenchArgs args = Quick(0);
  EXPECT_EQ(MeasureCodec(args).status().code(), StatusCode::kInvalidArgument);
  args = Quick(10);
  args.min_s = NAN;
  EXPECT_EQ(MeasureCodec(args).status().code(), StatusCode::kInvalidArgument);
  args = Quick(10);
  args.specs = {QuantSpec::None()};
  EXPECT_EQ(MeasureCodec(args).status().code(), StatusCode::kInvalidArgument);
  args = Quick(10);
  args.dtypes = {DType::kByte};
  EXPECT_EQ(MeasureCodec(args).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace zpp
