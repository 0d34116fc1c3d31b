// Contracts 2, 3, 4, 6 and 7, for every format, on random bit patterns and edge values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/float_bits.h"
#include "tests/quant/codec_cases.h"

namespace zpp::testing {
namespace {

constexpr int32_t kBlocks[] = {32, 128, 2048};

bool Nearest(const QuantSpec& spec) { return spec.rounding == Rounding::kNearest; }

// Calls fn(first element, last element) for each block.
template <class Fn>
void ForBlocks(const QuantSpec& spec, int64_t elems, Fn fn) {
  for (int64_t at = 0; at < elems; at += spec.block_elems) {
    fn(static_cast<size_t>(at),
       static_cast<size_t>(std::min<int64_t>(at + spec.block_elems, elems)));
  }
}

float AbsMax(std::span<const float> x) {
  float largest = 0;
  for (float value : x) largest = std::max(largest, std::fabs(value));
  return largest;
}

template <class Fn>
void ForFiniteInputs(Fn fn) {
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    for (Pattern pattern : AllPatterns()) {
      if (pattern == Pattern::kNonfinite) continue;
      for (DType dtype : kDTypes) {
        for (uint64_t seed = 0; seed < 3; ++seed) {
          SCOPED_TRACE(ToString(spec) + " " + Name(pattern) + " " + std::string(DTypeName(dtype)));
          fn(spec, dtype, Make(pattern, 3 * spec.block_elems + 7, seed, dtype));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(CodecContract, FiniteInFiniteOutWithinTheBound) {
  ForFiniteInputs([](const QuantSpec& spec, DType, const std::vector<float>& x) {
    const int64_t elems = static_cast<int64_t>(x.size());
    const std::vector<float> y = DecodeF32(spec, EncodeF32(spec, x), elems);
    ForBlocks(spec, elems, [&](size_t begin, size_t end) {
      const float absmax = AbsMax(std::span(x).subspan(begin, end - begin));
      const double bound = ErrorBound(spec, absmax);
      for (size_t i = begin; i < end; ++i) {
        ASSERT_TRUE(std::isfinite(y[i]));
        ASSERT_LE(std::fabs(static_cast<double>(y[i]) - x[i]), bound) << x[i] << " max " << absmax;
      }
    });
  });
}

// The bound is half a step (int4's short side: about one): tight enough to mean something.
TEST(CodecContract, BoundIsHalfAStep) {
  for (float absmax : {1e-30f, 0.37f, 1.0f, 1000.0f, 1e38f}) {
    QuantSpec spec = QuantSpec::Int8();
    EXPECT_LE(ErrorBound(spec, absmax), absmax / 127 * 0.503f);
    spec = QuantSpec::Int4(Code::kLinear);
    EXPECT_LE(ErrorBound(spec, absmax), absmax / 8 * 1.04f);
    spec = QuantSpec::Int4(Code::kSqrt);
    EXPECT_LE(ErrorBound(spec, absmax), absmax * (15.0f / 64 + 0.004f));
  }
}

// Away from the short side every element is within half a step of its own level.
TEST(CodecContract, HalfAStepOfTheNeighbouringLevels) {
  ForFiniteInputs([](const QuantSpec& spec, DType, const std::vector<float>& x) {
    if (!Nearest(spec)) return;
    const int64_t elems = static_cast<int64_t>(x.size());
    const std::vector<float> y = DecodeF32(spec, EncodeF32(spec, x), elems);
    ForBlocks(spec, elems, [&](size_t begin, size_t end) {
      const double top = AbsMax(std::span(y).subspan(begin, end - begin));
      if (top == 0) return;
      const double step = top / (spec.format == Format::kInt8 ? 127 : 8);
      for (size_t i = begin; i < end; ++i) {
        const double magnitude = std::fabs(static_cast<double>(y[i])) / top;
        double half = 0.5 * step;
        if (spec.code == Code::kSqrt) {
          const double k = std::round(std::sqrt(magnitude) * 8);
          half = (2 * k + 1) / 128 * top;  // the gap outwards is the wider one
        }
        const bool last = spec.format == Format::kInt4 && magnitude > 0.75 && magnitude < 1;
        if (last) half = 1.01 * (1 - magnitude) * top + 0.01 * top;
        ASSERT_LE(std::fabs(static_cast<double>(y[i]) - x[i]), half * 1.0001) << x[i];
      }
    });
  });
}

TEST(CodecContract, SixteenBitVectorsComeBackFinite) {
  ForFiniteInputs([](const QuantSpec& spec, DType dtype, const std::vector<float>& x) {
    if (dtype == DType::kF32) return;
    Guarded in(dtype, x, 0), out(dtype, x, 0);
    std::vector<std::byte> payload(
        static_cast<size_t>(PayloadBytes(spec, static_cast<int64_t>(x.size()))));
    ASSERT_TRUE(Encode(spec, in.vec(dtype), payload).ok());
    ASSERT_TRUE(Decode(spec, payload, out.out(dtype)).ok());
    for (size_t i = 0; i < x.size(); ++i) {
      uint16_t half;
      std::memcpy(&half, out.data() + 2 * i, 2);
      ASSERT_TRUE(std::isfinite(dtype == DType::kF16 ? F32FromF16(half) : F32FromBF16(half)))
          << x[i];
    }
  });
}

TEST(CodecContract, ZerosDecodeToZeros) {
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    std::vector<float> x(static_cast<size_t>(2 * spec.block_elems + 1), 0.0f);
    for (size_t i = 0; i < x.size(); i += 3) x[i] = -0.0f;
    const std::vector<std::byte> payload = EncodeF32(spec, x);
    EXPECT_TRUE(
        std::all_of(payload.begin(), payload.end(), [](std::byte b) { return b == std::byte{0}; }));
    for (float y : DecodeF32(spec, payload, static_cast<int64_t>(x.size()))) {
      EXPECT_EQ(BitsOf(y), 0u);
    }
  }
}

TEST(CodecContract, SubnormalBlocksDecodeToZerosNeverToNaN) {
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    const std::vector<float> x = Make(Pattern::kTiny, spec.block_elems, 1);
    for (float y : DecodeF32(spec, EncodeF32(spec, x), spec.block_elems)) EXPECT_EQ(y, 0.0f);
  }
}

TEST(CodecContract, OneNonfiniteElementMakesItsWholeBlockNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float signaling = FloatOf(0x7f800001u);
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    for (float poison : {infinity, -infinity, nan, -nan, signaling, -signaling}) {
      for (int64_t at : {0, 1, spec.block_elems / 2 + 3, spec.block_elems - 1}) {
        std::vector<float> x = Make(Pattern::kNormal, 3 * spec.block_elems, 5);
        x[static_cast<size_t>(spec.block_elems + at)] = poison;
        const std::vector<float> y =
            DecodeF32(spec, EncodeF32(spec, x), static_cast<int64_t>(x.size()));
        for (size_t i = 0; i < y.size(); ++i) {
          const bool poisoned = i / static_cast<size_t>(spec.block_elems) == 1;
          ASSERT_EQ(std::isnan(y[i]), poisoned) << ToString(spec) << " " << i;
        }
      }
    }
  }
}

TEST(CodecContract, EncodingAgainGivesTheSameBytes) {
  ForFiniteInputs([](const QuantSpec& spec, DType, const std::vector<float>& x) {
    if (!Nearest(spec)) return;  // stochastic rounding need not reach the outermost level
    const std::vector<std::byte> once = EncodeF32(spec, x);
    const std::vector<float> y = DecodeF32(spec, once, static_cast<int64_t>(x.size()));
    ASSERT_TRUE(EncodeF32(spec, y) == once);
  });
}

// 32 768 blocks, each in one narrow range of exponents, over all of fp32's.
TEST(CodecContract, EncodingAgainGivesTheSameBytesAtEveryMagnitude) {
  constexpr int32_t kSmall[] = {32};
  for (const QuantSpec& spec : AllSpecs(kSmall)) {
    if (!Nearest(spec)) continue;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const std::vector<float> x = Make(Pattern::kRandomScales, 32 * 4096, seed);
      const std::vector<std::byte> once = EncodeF32(spec, x);
      const std::vector<float> y = DecodeF32(spec, once, static_cast<int64_t>(x.size()));
      ASSERT_TRUE(EncodeF32(spec, y) == once) << ToString(spec);
    }
  }
}

TEST(CodecContract, NegatingTheInputNegatesTheOutput) {
  ForFiniteInputs([](const QuantSpec& spec, DType, const std::vector<float>& x) {
    if (!Nearest(spec)) return;
    const int64_t elems = static_cast<int64_t>(x.size());
    std::vector<float> negated(x);
    for (float& value : negated) value = -value;
    const std::vector<float> y = DecodeF32(spec, EncodeF32(spec, x), elems);
    const std::vector<float> z = DecodeF32(spec, EncodeF32(spec, negated), elems);
    ForBlocks(spec, elems, [&](size_t begin, size_t end) {
      const auto block = std::span(x).subspan(begin, end - begin);
      const float absmax = AbsMax(block);
      const bool tie = spec.format == Format::kInt4 &&
                       std::count(block.begin(), block.end(), absmax) > 0 &&
                       std::count(block.begin(), block.end(), -absmax) > 0;
      if (tie) return;
      for (size_t i = begin; i < end; ++i) ASSERT_EQ(y[i], -z[i]) << x[i];
    });
  });
}

TEST(CodecContract, TiesFollowTheRuleNotTheOrder) {
  std::vector<float> x(32, 0.25f);
  x[3] = 8;
  x[20] = -8;
  std::vector<float> reversed(x.rbegin(), x.rend());
  const QuantSpec spec = QuantSpec::Int4(Code::kLinear, 32);
  const std::vector<float> y = DecodeF32(spec, EncodeF32(spec, x), 32);
  std::vector<float> z = DecodeF32(spec, EncodeF32(spec, reversed), 32);
  std::reverse(z.begin(), z.end());
  EXPECT_EQ(y, z);
  EXPECT_EQ(y[3], 8.0f);    // the positive one is exact,
  EXPECT_EQ(y[20], -7.0f);  // the negative one loses a step
}

TEST(CodecContract, TheScaleOfATailIsItsOwn) {
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    std::vector<float> x(static_cast<size_t>(spec.block_elems) + 1, 1000.0f);
    x.back() = 1e-3f;
    const std::vector<float> y =
        DecodeF32(spec, EncodeF32(spec, x), static_cast<int64_t>(x.size()));
    EXPECT_NEAR(y.back(), 1e-3f, 1e-3f * 0.01f) << ToString(spec);
  }
}

}  // namespace
}  // namespace zpp::testing
