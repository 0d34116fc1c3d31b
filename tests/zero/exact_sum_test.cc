// The sum of squares is exact: the same for every order and every cut, against a reference that
// adds single bits.
#include "zero/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace zpp {
namespace {

constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kLeast = std::numeric_limits<float>::denorm_min();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

ExactSum SumOf(std::span<const float> values) {
  ExactSum sum;
  sum.AddSquares(values);
  return sum;
}

// Bit i stands for 2^(i - 298).
class BitwiseSum {
 public:
  void AddSquare(float x) {
    int exponent = 0;
    const double fraction = std::frexp(static_cast<double>(x), &exponent);
    const auto mantissa = static_cast<uint64_t>(std::fabs(std::ldexp(fraction, 24)));
    const uint64_t square = mantissa * mantissa;
    for (int bit = 0; bit < 48; ++bit) {
      if ((square >> bit & 1) != 0) AddBit(2 * (exponent - 24) + bit + 298);
    }
  }

  // By hand: 53 bits from the highest one on, ties to even.
  double ToDouble() const {
    int top = static_cast<int>(bits_.size()) - 1;
    while (top >= 0 && !bits_[At(top)]) --top;
    if (top < 0) return 0;
    double value = 0;
    for (int i = top; i > top - 53; --i) value = 2 * value + (BitAt(i) ? 1 : 0);
    const bool half = BitAt(top - 53);
    bool more = false;
    for (int i = 0; i < top - 53; ++i) more |= BitAt(i);
    if (half && (more || BitAt(top - 52))) value += 1;
    return std::ldexp(value, top - 52 - 298);
  }

 private:
  static size_t At(int bit) { return static_cast<size_t>(bit); }
  bool BitAt(int bit) const { return bit >= 0 && bits_[At(bit)]; }
  void AddBit(int bit) {
    // Bits below 2^-298 are none: the lowest ones of subnormal mantissas are zeros.
    ASSERT_GE(bit, 0);
    for (; bits_[At(bit)]; ++bit) bits_[At(bit)] = false;
    bits_[At(bit)] = true;
  }

  std::vector<bool> bits_ = std::vector<bool>(640);
};

double Reference(std::span<const float> values) {
  BitwiseSum sum;
  for (float x : values) sum.AddSquare(x);
  return sum.ToDouble();
}

// Finite floats with every exponent alike.
std::vector<float> AnyMagnitude(size_t elems, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<float> values;
  while (values.size() < elems) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(rng()));
    if (std::isfinite(x)) values.push_back(x);
  }
  return values;
}

std::vector<float> Normal(size_t elems, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(elems);
  for (float& x : values) x = normal(rng);
  return values;
}

TEST(ExactSum, MatchesTheSumOfSingleBits) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (size_t elems : {1, 2, 7, 8, 9, 100, 3000}) {
      const std::vector<float> any = AnyMagnitude(elems, seed);
      const std::vector<float> normal = Normal(elems, seed);
      EXPECT_EQ(SumOf(any).ToDouble(), Reference(any)) << seed << " n=" << elems;
      EXPECT_EQ(SumOf(normal).ToDouble(), Reference(normal)) << seed << " n=" << elems;
      EXPECT_EQ(SumOf(normal).Norm(), std::sqrt(Reference(normal)));
    }
  }
}

TEST(ExactSum, EveryExponentAlone) {
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (uint32_t mantissa : {0u, 1u, 0x2aaaaau, 0x7fffffu}) {
      const float x = std::bit_cast<float>(exponent << 23 | mantissa);
      const double square = static_cast<double>(x) * static_cast<double>(x);  // exact
      EXPECT_EQ(SumOf({&x, 1}).ToDouble(), square) << x;
      const float minus = -x;
      EXPECT_EQ(SumOf({&minus, 1}), SumOf({&x, 1}));
    }
  }
}

// In any order, cut into any pieces, merged in any order.
TEST(ExactSum, OrderAndCutsDoNotMatter) {
  std::mt19937 rng(3);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<float> values = AnyMagnitude(20000, seed);
    values[17] = kInfinity;
    const ExactSum whole = SumOf(values);
    for (size_t longest : {1, 10, 1000, 30000}) {
      std::shuffle(values.begin(), values.end(), rng);
      std::vector<ExactSum> sums(5);
      for (size_t at = 0; at < values.size();) {
        const size_t count = std::min<size_t>(1 + rng() % longest, values.size() - at);
        sums[rng() % sums.size()].AddSquares(std::span(values).subspan(at, count));
        at += count;
      }
      std::shuffle(sums.begin(), sums.end(), rng);
      ExactSum merged;
      for (const ExactSum& sum : sums) merged.Merge(sum);
      EXPECT_EQ(merged, whole) << "pieces of up to " << longest;
    }
  }
}

TEST(ExactSum, RoundsOnceToNearestEven) {
  const float big = 0x1p27f;  // its square is 2^54, where doubles are 4 apart
  const auto sum = [](std::vector<float> values) { return SumOf(values).ToDouble(); };
  EXPECT_EQ(sum({big, 1}), 0x1p54);
  EXPECT_EQ(sum({big, 1, 1}), 0x1p54);  // a tie
  EXPECT_EQ(sum({big, 1, 1, kLeast}), 0x1p54 + 4);
  EXPECT_EQ(sum({big, 1, 1, 1}), 0x1p54 + 4);
  EXPECT_EQ(sum({big, 2, 1, 1}), 0x1p54 + 8);  // a tie between 4 and 8
  EXPECT_EQ(sum({big, 2, 1, kLeast}), 0x1p54 + 4);
  // All bits below the kept ones are set: the carry runs through.
  std::vector<float> carry = {0x1p40f};
  for (int i = 39; i > -100; --i) carry.insert(carry.end(), 3, std::ldexp(1.0f, i));
  EXPECT_EQ(sum(carry), Reference(carry));
}

// More elements than one bin holds, all with the largest square of their exponent.
TEST(ExactSum, FullBinsDoNotOverflow) {
  const std::vector<float> values((3 << 16) + 17, 0x1.fffffep0f);
  EXPECT_EQ(SumOf(values).ToDouble(), Reference(values));
}

TEST(ExactSum, LargestSums) {
  ExactSum sum = SumOf(std::vector<float>(1000, kMax));
  double expected = 1000 * static_cast<double>(kMax) * static_cast<double>(kMax);
  for (int doubling = 0; doubling < 60; ++doubling) {
    EXPECT_NEAR(sum.ToDouble() / expected, 1, 1e-12);
    sum.Merge(sum);
    expected *= 2;
  }
  // Nothing of the least term is lost beside it.
  ExactSum more = sum;
  more.AddSquares(std::vector<float>{kLeast});
  EXPECT_NE(more, sum);
  EXPECT_EQ(more.ToDouble(), sum.ToDouble());
}

TEST(ExactSum, NonfiniteElementsAreCounted) {
  const float signalling = std::bit_cast<float>(0x7f800001u);
  for (float bad : {kNaN, -kNaN, kInfinity, -kInfinity, signalling}) {
    for (size_t at : {0, 1, 7, 8, 99, 100}) {
      std::vector<float> values = Normal(101, at);
      values[at] = bad;
      ExactSum sum = SumOf(values);
      EXPECT_EQ(sum.nonfinite(), 1u);
      EXPECT_TRUE(std::isnan(sum.ToDouble()) && std::isnan(sum.Norm()));
      ExactSum clean = SumOf(Normal(10, 1));
      EXPECT_EQ(clean.nonfinite(), 0u);
      clean.Merge(sum);
      EXPECT_EQ(clean.nonfinite(), 1u);
      EXPECT_TRUE(std::isnan(clean.ToDouble()));
      sum.Merge(clean);
      EXPECT_EQ(sum.nonfinite(), 2u);
    }
  }
  EXPECT_EQ(SumOf(std::vector<float>(200000, kNaN)).nonfinite(), 200000u);
}

TEST(ExactSum, NothingIsZero) {
  EXPECT_EQ(SumOf({}).ToDouble(), 0);
  EXPECT_EQ(SumOf(std::vector<float>{0.0f, -0.0f}), ExactSum());
  EXPECT_EQ(ExactSum().Norm(), 0);
}

TEST(ExactSum, BytesAreLittleEndianAndComeBack) {
  const float one = 1;
  const auto bytes = SumOf({&one, 1}).Serialize();
  for (size_t i = 0; i < bytes.size(); ++i) {
    // 1 = 2^298 units: bit 2 of byte 37.
    EXPECT_EQ(bytes[i], i == 37 ? std::byte{4} : std::byte{0}) << i;
  }
  std::vector<float> values = AnyMagnitude(5000, 1);
  values.push_back(kNaN);
  const ExactSum sum = SumOf(values);
  EXPECT_EQ(ExactSum::Deserialize(sum.Serialize()), sum);
  EXPECT_EQ(sum.Serialize()[8 * ExactSum::kLimbs], std::byte{1});
}

}  // namespace
}  // namespace zpp
