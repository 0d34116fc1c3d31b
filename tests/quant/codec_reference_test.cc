// The codec against a naive one in double that shares no code with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/quant/codec_cases.h"

namespace zpp::testing {
namespace {

// Rounds to `bits` significant bits, ties to even; the caller keeps away from subnormals.
double RoundToBits(double x, int bits) {
  if (x == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);  // in [0.5, 1)
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

// Ties go to the even level, with the sqrt code to the smaller one.
double NearestLevel(const std::vector<double>& levels, bool sqrt_code, double t) {
  double best = levels[0];
  for (double level : levels) {
    const double closer = std::fabs(t - best) - std::fabs(t - level);
    const bool preferred =
        sqrt_code ? std::fabs(level) < std::fabs(best) : std::fmod(level, 2) == 0;
    if (closer > 0 || (closer == 0 && preferred)) best = level;
  }
  return best;
}

std::vector<double> Levels(const QuantSpec& spec) {
  std::vector<double> levels;
  const int low = spec.format == Format::kInt8 ? -127 : -8;
  const int high = spec.format == Format::kInt8 ? 127 : 7;
  for (int k = low; k <= high; ++k) {
    levels.push_back(spec.code == Code::kSqrt ? k * std::abs(k) : k);
  }
  return levels;
}

// Decoded values of one finite block, nearest rounding.
std::vector<double> ReferenceBlock(const QuantSpec& spec, std::span<const float> x) {
  double largest = 0;
  bool negative = true;
  for (float value : x) largest = std::fmax(largest, std::fabs(value));
  for (float value : x) negative = negative && !(value == largest);
  const double top = spec.format == Format::kInt8 ? 127 : spec.code == Code::kSqrt ? 64 : 8;
  const int bits = spec.scale_type == ScaleType::kBF16 ? 8 : 16;
  double scale = RoundToBits(static_cast<float>(largest / top), bits);
  if (scale * top > 3.4028234663852886e38) {  // one step down
    const bool power_of_two = std::exp2(std::ilogb(scale)) == scale;
    scale -= std::ldexp(1.0, std::ilogb(scale) - bits + (power_of_two ? 0 : 1));
  }
  std::vector<double> decoded(x.size(), 0.0);
  if (scale < std::ldexp(1.0, -124)) return decoded;
  if (spec.format == Format::kInt4 && !negative) scale = -scale;
  const float inverse = static_cast<float>(1.0 / scale);
  const std::vector<double> levels = Levels(spec);
  for (size_t i = 0; i < x.size(); ++i) {
    const float t = static_cast<float>(static_cast<double>(x[i]) * inverse);
    decoded[i] = scale * NearestLevel(levels, spec.code == Code::kSqrt, t);
  }
  return decoded;
}

TEST(CodecReference, EqualsNaiveCodecInDouble) {
  constexpr int32_t kBlocks[] = {32, 128, 256};
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    if (spec.rounding != Rounding::kNearest) continue;
    for (Pattern pattern : AllPatterns()) {
      if (pattern == Pattern::kNonfinite) continue;
      const std::vector<float> x = Make(pattern, 3 * spec.block_elems + 5, 99);
      const int64_t elems = static_cast<int64_t>(x.size());
      const std::vector<float> decoded = DecodeF32(spec, EncodeF32(spec, x), elems);
      for (int64_t at = 0; at < elems; at += spec.block_elems) {
        const size_t length = static_cast<size_t>(std::min<int64_t>(spec.block_elems, elems - at));
        const auto block = std::span(x).subspan(static_cast<size_t>(at), length);
        const std::vector<double> expected = ReferenceBlock(spec, block);
        for (size_t i = 0; i < length; ++i) {
          ASSERT_EQ(decoded[static_cast<size_t>(at) + i], expected[i])
              << ToString(spec) << " " << Name(pattern) << " element " << i << " of block " << at
              << " x=" << block[i];
        }
      }
    }
  }
}

// The layout of bytes, by hand: int4 block 32, values 0..8 times 0.5 and -4.
TEST(CodecReference, BytesByHand) {
  std::vector<float> x = {0, 0.5f, 1, 1.5f, 2, 2.5f, 3, -4, 3.5f};
  const std::vector<std::byte> payload = EncodeF32(QuantSpec::Int4(Code::kLinear, 32), x);
  // Scale: -4 is the largest magnitude and gets code -8, so the scale is 0.5 = bf16 0x3f00.
  const uint8_t expected[] = {0x00, 0x3f, 0, 0, 0, 0,    0,    0,    0,    0,   0,
                              0,    0,    0, 0, 0, 0x10, 0x32, 0x54, 0x86, 0x07};
  ASSERT_EQ(payload.size(), sizeof expected);
  EXPECT_EQ(std::memcmp(payload.data(), expected, sizeof expected), 0);
}

}  // namespace
}  // namespace zpp::testing
