// Every one of the 65536 bit patterns, and every neighbourhood of a rounding border, against a
// reference in double.
#include "common/float_bits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace zpp {
namespace {

// A 16-bit format's value by its definition, in double.
double ValueOf(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(1 + std::ldexp(mantissa, -mantissa_bits), exponent - bias);
}

struct Half {
  static constexpr int kExponent = 5, kMantissa = 10;
  static float Widen(uint16_t x) { return F32FromF16(x); }
  static uint16_t Narrow(float x) { return F16FromF32(x); }
};
struct Brain {
  static constexpr int kExponent = 8, kMantissa = 7;
  static float Widen(uint16_t x) { return F32FromBF16(x); }
  static uint16_t Narrow(float x) { return BF16FromF32(x); }
};

template <typename F>
class FloatBits : public ::testing::Test {};
using Formats = ::testing::Types<Half, Brain>;
TYPED_TEST_SUITE(FloatBits, Formats);

TYPED_TEST(FloatBits, WideningIsExactForEveryPattern) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const double expected = ValueOf(bits, TypeParam::kExponent, TypeParam::kMantissa);
    const float wide = TypeParam::Widen(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide)) << i;
      ASSERT_EQ(std::signbit(wide), (i & 0x8000) != 0) << i;
    } else {
      ASSERT_EQ(wide, expected) << i;
      ASSERT_EQ(std::signbit(wide), std::signbit(expected)) << i;
      ASSERT_EQ(TypeParam::Narrow(wide), bits) << i;
    }
  }
}

// Between two neighbours: below the middle goes down, above it up, the middle itself to the even
// one.
TYPED_TEST(FloatBits, RoundsToNearestEvenAtEveryBorder) {
  const uint32_t infinity = ((1u << TypeParam::kExponent) - 1) << TypeParam::kMantissa;
  for (uint32_t i = 0; i + 1 < infinity; ++i) {
    const auto low = static_cast<uint16_t>(i), high = static_cast<uint16_t>(i + 1);
    const double middle = (ValueOf(low, TypeParam::kExponent, TypeParam::kMantissa) +
                           ValueOf(high, TypeParam::kExponent, TypeParam::kMantissa)) /
                          2;
    const auto border = static_cast<float>(middle);
    ASSERT_EQ(border, middle) << "the middle must be an fp32 number";
    for (float sign : {1.0f, -1.0f}) {
      const uint16_t bit = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(TypeParam::Narrow(sign * border), bit | (i % 2 == 0 ? low : high)) << i;
      ASSERT_EQ(TypeParam::Narrow(sign * std::nextafterf(border, 0)), bit | low) << i;
      ASSERT_EQ(
          TypeParam::Narrow(sign * std::nextafterf(border, std::numeric_limits<float>::max())),
          bit | high)
          << i;
    }
  }
}

TYPED_TEST(FloatBits, LargeValuesBecomeInfinityAndNanStaysNan) {
  const uint32_t infinity = ((1u << TypeParam::kExponent) - 1) << TypeParam::kMantissa;
  const float huge = std::numeric_limits<float>::max();
  EXPECT_EQ(TypeParam::Narrow(huge), infinity);
  EXPECT_EQ(TypeParam::Narrow(-huge), infinity | 0x8000);
  EXPECT_EQ(TypeParam::Narrow(std::numeric_limits<float>::infinity()), infinity);
  std::mt19937 rng(1);
  for (int i = 0; i < 10000; ++i) {
    const uint32_t payload = (rng() & 0x007fffffu) | 1u;
    const float nan = FloatOf(0x7f800000u | payload | (rng() & 0x80000000u));
    const uint16_t narrow = TypeParam::Narrow(nan);
    ASSERT_TRUE(std::isnan(TypeParam::Widen(narrow))) << payload;
    ASSERT_EQ(narrow >> 15, BitsOf(nan) >> 31);
  }
}

}  // namespace
}  // namespace zpp
