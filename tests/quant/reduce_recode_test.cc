// ReduceRecode against a naive sum of decoded operands, in every mixture, on every target.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "common/float_bits.h"
#include "tests/quant/codec_cases.h"

namespace zpp::testing {
namespace {

struct Operands {
  std::vector<QuantSpec> specs;
  std::vector<std::vector<std::byte>> payloads;
  std::vector<Operand> list;
};

Operands MakeOperands(const std::vector<QuantSpec>& specs, int64_t elems, Pattern pattern) {
  Operands made;
  made.specs = specs;
  for (size_t k = 0; k < specs.size(); ++k) {
    const DType dtype = specs[k].compressed() ? DType::kF32 : specs[k].plain;
    const std::vector<float> x = Make(pattern, elems, 100 + k, dtype);
    made.payloads.push_back(EncodeF32(specs[k], x));
  }
  for (size_t k = 0; k < specs.size(); ++k) made.list.push_back({specs[k], made.payloads[k]});
  return made;
}

std::vector<float> NaiveSum(const Operands& operands, int64_t elems, float divisor) {
  std::vector<float> sum = DecodeF32(operands.specs[0], operands.payloads[0], elems);
  for (size_t k = 1; k < operands.specs.size(); ++k) {
    const std::vector<float> y = DecodeF32(operands.specs[k], operands.payloads[k], elems);
    for (size_t i = 0; i < y.size(); ++i) sum[i] = sum[i] + y[i];
  }
  for (float& value : sum) value = divisor == 1 ? value : value / divisor;
  return sum;
}

const std::vector<QuantSpec> kOutSpecs = {
    QuantSpec::None(), QuantSpec::None(DType::kF16), QuantSpec::None(DType::kBF16),
    QuantSpec::Int8(), QuantSpec::Int4(Code::kSqrt), QuantSpec::Int4(Code::kLinear, 32)};

void ExpectNaive(const std::vector<QuantSpec>& in, int64_t elems, float divisor, Pattern pattern) {
  const Operands operands = MakeOperands(in, elems, pattern);
  const std::vector<float> sum = NaiveSum(operands, elems, divisor);
  for (const QuantSpec& out_spec : kOutSpecs) {
    const std::vector<std::byte> expected = EncodeF32(out_spec, sum);
    for (std::string_view target : CodecTargets()) {
      const WithTarget use(target);
      for (size_t misaligned : {0, 1}) {
        Guarded out(expected.size(), misaligned);
        const ReduceArgs args{.in = operands.list,
                              .elems = elems,
                              .divisor = divisor,
                              .out_spec = out_spec,
                              .noise = {}};
        ASSERT_TRUE(ReduceRecode(args, out.span()).ok());
        ASSERT_TRUE(out.intact());
        ASSERT_TRUE(out.copy() == expected)
            << target << " " << in.size() << " x " << ToString(in[0]) << " -> "
            << ToString(out_spec) << " n=" << elems << " / " << divisor << " " << Name(pattern);
      }
    }
  }
}

TEST(ReduceRecode, SameFormats) {
  for (const QuantSpec& spec :
       {QuantSpec::None(), QuantSpec::None(DType::kF16), QuantSpec::None(DType::kBF16),
        QuantSpec::Int8(), QuantSpec::Int8(32), QuantSpec::Int4(Code::kLinear),
        QuantSpec::Int4(Code::kSqrt, 2048)}) {
    for (size_t count : {1, 2, 3, 4, 8, 9, 17, 20}) {
      for (int64_t elems : {0, 1, 2, 31, 129, 2048, 4099}) {
        const float divisor = count % 2 == 0 ? 1.0f : static_cast<float>(count);
        ExpectNaive(std::vector<QuantSpec>(count, spec), elems, divisor, Pattern::kNormal);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ReduceRecode, Mixtures) {
  const std::vector<QuantSpec> mixture = {QuantSpec::None(),
                                          QuantSpec::Int8(64),
                                          QuantSpec::Int4(Code::kSqrt, 512),
                                          QuantSpec::None(DType::kBF16),
                                          QuantSpec::Int4(Code::kLinear, 32),
                                          *ParseQuantSpec("int8/2048/fp32-scales")};
  for (int64_t elems : {1, 33, 2047, 2048, 6001}) {
    for (Pattern pattern : {Pattern::kNormal, Pattern::kEdges, Pattern::kRandomScales}) {
      ExpectNaive(mixture, elems, 1, pattern);
      ExpectNaive(mixture, elems, 6, pattern);
      if (HasFatalFailure()) return;
    }
  }
}

// 1e8 + 1 - 1e8 is 0 from left to right and 1 in another order.
TEST(ReduceRecode, SumsFromLeftToRight) {
  const float values[] = {1e8f, 1.0f, -1e8f};
  std::vector<Operand> operands;
  for (const float& value : values) {
    operands.push_back({QuantSpec::None(), std::as_bytes(std::span(&value, 1))});
  }
  float out = -1;
  ASSERT_TRUE(ReduceRecode({.in = operands, .elems = 1, .out_spec = {}, .noise = {}},
                           std::as_writable_bytes(std::span(&out, 1)))
                  .ok());
  EXPECT_EQ(out, 0.0f);
}

TEST(ReduceRecode, InPlaceOverAnyPlainOperand) {
  constexpr int64_t kElems = 5003;
  for (std::string_view target : CodecTargets()) {
    const WithTarget use(target);
    for (DType dtype : kDTypes) {
      for (size_t count : {1, 2, 5, 12, 20}) {
        for (size_t place : {size_t{0}, count / 2, count - 1}) {
          const std::vector<QuantSpec> specs(count, QuantSpec::None(dtype));
          Operands operands = MakeOperands(specs, kElems, Pattern::kNormal);
          const std::vector<std::byte> expected =
              EncodeF32(QuantSpec::None(dtype), NaiveSum(operands, kElems, 3));
          const ReduceArgs args{.in = operands.list,
                                .elems = kElems,
                                .divisor = 3,
                                .out_spec = QuantSpec::None(dtype),
                                .noise = {}};
          ASSERT_TRUE(ReduceRecode(args, operands.payloads[place]).ok());
          ASSERT_TRUE(operands.payloads[place] == expected)
              << target << " " << DTypeName(dtype) << " " << count << " at " << place;
        }
      }
    }
  }
}

TEST(DecodeAccumulate, AddsPlainValuesToo) {
  for (DType dtype : kDTypes) {
    const QuantSpec spec = QuantSpec::None(dtype);
    for (int64_t elems : {0, 1, 31, 32, 129, 5003}) {
      const std::vector<float> start = Make(Pattern::kNormal, elems, 1);
      const std::vector<std::byte> payload =
          EncodeF32(spec, Make(Pattern::kRandomScales, elems, 2, dtype));
      const std::vector<float> y = DecodeF32(spec, payload, elems);
      for (std::string_view target : CodecTargets()) {
        const WithTarget use(target);
        Guarded acc(DType::kF32, start, 4);
        const std::span<float> sums(reinterpret_cast<float*>(acc.data()),
                                    static_cast<size_t>(elems));
        ASSERT_TRUE(DecodeAccumulate(spec, payload, sums).ok());
        ASSERT_TRUE(acc.intact());
        for (size_t i = 0; i < y.size(); ++i) {
          ASSERT_EQ(sums[i], start[i] + y[i]) << target << " " << DTypeName(dtype) << " " << i;
        }
      }
    }
  }
}

TEST(ReduceRecode, NaNAndInfinityReachThePlainSum) {
  const Operands operands =
      MakeOperands({QuantSpec::None(), QuantSpec::None()}, 4000, Pattern::kNonfinite);
  const std::vector<float> sum = NaiveSum(operands, 4000, 1);
  for (std::string_view target : CodecTargets()) {
    const WithTarget use(target);
    std::vector<uint16_t> out(4000);
    ASSERT_TRUE(ReduceRecode({.in = operands.list,
                              .elems = 4000,
                              .out_spec = QuantSpec::None(DType::kBF16),
                              .noise = {}},
                             std::as_writable_bytes(std::span(out)))
                    .ok());
    for (size_t i = 0; i < out.size(); ++i) {
      const float value = F32FromBF16(out[i]);
      ASSERT_EQ(std::isnan(value), std::isnan(sum[i])) << target << " " << i;
      if (std::isnan(value)) continue;
      ASSERT_EQ(out[i], BF16FromF32(sum[i])) << target << " " << i;
    }
  }
}

// Whatever is given and asked for, statistics change no byte: neither signaling NaNs that are only
// moved, nor the narrowing of a lone decoded operand.
TEST(ReduceRecode, StatisticsChangeNoByte) {
  constexpr int64_t kElems = 4099;
  const std::vector<std::vector<QuantSpec>> inputs = {
      {QuantSpec::None()},
      {QuantSpec::None(DType::kF16)},
      {QuantSpec::None(DType::kBF16)},
      {QuantSpec::Int8(64)},
      {*ParseQuantSpec("int8/32/stochastic")},
      {QuantSpec::Int4(Code::kSqrt, 32)},
      {QuantSpec::Int8(64), QuantSpec::None(DType::kF16)},
      {QuantSpec::None(DType::kBF16), QuantSpec::None(DType::kBF16)}};
  for (const std::vector<QuantSpec>& specs : inputs) {
    for (Pattern pattern : {Pattern::kNormal, Pattern::kHuge, Pattern::kNonfinite}) {
      Operands operands = MakeOperands(specs, kElems, pattern);
      if (pattern == Pattern::kHuge && specs[0].compressed()) {  // of fp16
        operands.payloads[0] = EncodeF32(specs[0], Make(pattern, kElems, 1, DType::kF16));
        operands.list[0].payload = operands.payloads[0];
      }
      if (pattern == Pattern::kNonfinite && !specs[0].compressed()) {
        const uint32_t signaling[] = {0x7f800001u, 0x7c01u, 0x7f81u};
        const DType dtype = specs[0].plain;
        std::memcpy(operands.payloads[0].data(), &signaling[static_cast<int>(dtype)],
                    static_cast<size_t>(SizeOf(dtype)));
      }
      for (const QuantSpec& out_spec : kOutSpecs) {
        for (std::string_view target : CodecTargets()) {
          const WithTarget use(target);
          const ReduceArgs args{
              .in = operands.list, .elems = kElems, .out_spec = out_spec, .noise = {}};
          std::vector<std::byte> without(static_cast<size_t>(PayloadBytes(out_spec, kElems)));
          std::vector<std::byte> with(without.size(), std::byte{0xcc});
          ErrorStats stats;
          ASSERT_TRUE(ReduceRecode(args, without).ok());
          ASSERT_TRUE(ReduceRecode(args, with, &stats).ok());
          ASSERT_TRUE(with == without) << target << " " << ToString(specs[0]) << " -> "
                                       << ToString(out_spec) << " " << Name(pattern);
          ASSERT_GT(stats.nonzero + stats.nonfinite, 0);
        }
      }
    }
  }
}

TEST(ReduceRecode, StochasticNoiseDoesNotDependOnTheCut) {
  const QuantSpec spec = *ParseQuantSpec("int4/64/sqrt/stochastic");
  const Operands operands =
      MakeOperands({QuantSpec::Int8(64), QuantSpec::Int8(64)}, 6400, Pattern::kNormal);
  const NoiseKey noise{.seed = 8, .step = 1, .first_elem = 640};
  const std::vector<std::byte> expected = EncodeF32(spec, NaiveSum(operands, 6400, 1), noise);
  std::vector<std::byte> out(expected.size());
  ASSERT_TRUE(
      ReduceRecode({.in = operands.list, .elems = 6400, .out_spec = spec, .noise = noise}, out)
          .ok());
  EXPECT_TRUE(out == expected);
}

TEST(ReduceRecode, BadArgumentsAreRefusedBeforeAnythingIsWritten) {
  float x[4] = {1, 2, 3, 4};
  const Operand operand{QuantSpec::None(), std::as_bytes(std::span(x))};
  std::vector<std::byte> out(16, std::byte{7});
  const std::vector<std::byte> untouched = out;
  const auto refused = [&](const ReduceArgs& args, std::span<std::byte> to) {
    EXPECT_EQ(ReduceRecode(args, to).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(out, untouched);
  };
  const std::span<const Operand> one(&operand, 1);
  refused({.in = {}, .elems = 4, .out_spec = {}, .noise = {}}, out);
  refused({.in = one, .elems = 5, .out_spec = {}, .noise = {}}, out);
  refused({.in = one, .elems = 4, .out_spec = {}, .noise = {}}, std::span(out).first(15));
  refused({.in = one, .elems = -1, .out_spec = {}, .noise = {}}, out);
  refused({.in = one, .elems = 4, .divisor = 0, .out_spec = {}, .noise = {}}, out);
  refused({.in = one, .elems = 4, .divisor = NAN, .out_spec = {}, .noise = {}}, out);
}

}  // namespace
}  // namespace zpp::testing
