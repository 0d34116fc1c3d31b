// The arithmetic of the codec: the only place that computes a scale or rounds a value. Scalar, SIMD
// and device code give the same bytes because they do what stands here, in this order, without
// fused multiply-add.
//
//   level:  what a code stands for: k, or sign(k)*k^2 with the sqrt code. Always a small integer.
//   value:  scale * level. Scales carry at most 16 significant bits and levels 7, so the product is
//   exact in fp32;
//           hence Encode(Decode(payload)) is payload again, and a fused multiply-add could not
//           change a sum.
//   scale:  largest magnitude of the block / top level, rounded to the scale type. Positive, except
//   that int4 with
//           nearest rounding gives it the sign that maps the element of largest magnitude to code
//           -8, the one code without a positive twin; when both signs have that magnitude, the
//           positive element is meant.
//   code:   level nearest to t = x * (1 / scale), ties to the even level (linear) or to the smaller
//   one (sqrt).
// No intermediate is ever subnormal, so flush-to-zero modes do not matter.
#pragma once

#include <cstdint>

#include "common/float_bits.h"
#include "quant/quant_spec.h"

namespace zpp {

inline constexpr uint32_t kInfinityBits = 0x7f800000u;
inline constexpr uint32_t kScaleNaNBits = 0x7fc00000u;  // the one NaN that is ever written
// A block whose scale would be smaller is encoded as zeros: 1/scale stays finite and normal.
inline constexpr float kMinScale = 0x1p-124f;
inline constexpr float kLargestF32 = 0x1.fffffep127f;

// Level of the outermost code: what the element of largest magnitude is mapped to.
ZPP_HD float TopLevel(const QuantSpec& spec) {
  if (spec.format == Format::kInt8) return 127.0f;
  const bool nearest = spec.rounding == Rounding::kNearest;
  if (spec.code == Code::kLinear) return nearest ? 8.0f : 7.0f;
  return nearest ? 64.0f : 49.0f;
}

// Low bits of an fp32 that a scale does not keep. fp32 scales drop eight too, see `value` above.
ZPP_HD int DroppedScaleBits(ScaleType type) { return type == ScaleType::kBF16 ? 16 : 8; }

// What a block's elements are divided by. `inverse` is 1/scale, or 0 when the codes are all zero.
struct BlockScale {
  float scale = 0;
  float inverse = 0;
};

// `positive_bits`: fp32 bits of the largest positive element (0 when there is none);
// `negative_bits`: magnitude bits of the most negative one. NaN and infinity count as the larger
// bits they have.
ZPP_HD BlockScale MakeScale(const QuantSpec& spec, uint32_t positive_bits, uint32_t negative_bits) {
  const bool from_negative = negative_bits > positive_bits;
  const uint32_t magnitude = from_negative ? negative_bits : positive_bits;
  if (magnitude >= kInfinityBits) return {FloatOf(kScaleNaNBits), 0.0f};
  const float top = TopLevel(spec);
  const int dropped = DroppedScaleBits(spec.scale_type);
  const uint32_t mask = (1u << dropped) - 1u;
  const bool nearest = spec.rounding == Rounding::kNearest;
  // Nearest even; away from zero for stochastic rounding, whose mean would suffer if the range were
  // cut.
  uint32_t bits = BitsOf(FloatOf(magnitude) / top);
  bits += nearest ? (mask >> 1) + ((bits >> dropped) & 1u) : mask;
  bits &= ~mask;
  if (FloatOf(bits) * top > kLargestF32) bits -= mask + 1u;  // finite in, finite out
  if (FloatOf(bits) < kMinScale) return {0.0f, 0.0f};
  const bool signed_scale = spec.format == Format::kInt4 && nearest;
  const float scale = FloatOf(bits | (signed_scale && !from_negative ? 0x80000000u : 0u));
  return {scale, 1.0f / scale};
}

// Nearest integer, ties to even; |t| < 2^22. Adding 1.5 * 2^23 leaves the integer in the low bits.
inline constexpr float kRoundingMagic = 12582912.0f;
inline constexpr int32_t kRoundingBias = 0x4b400000;
ZPP_HD int32_t RoundToInt(float t) {
  return static_cast<int32_t>(BitsOf(t + kRoundingMagic)) - kRoundingBias;
}

// Number of squares' midpoints that `magnitude`, an integer, reaches: the k whose k^2 is nearest,
// ties downwards.
ZPP_HD int32_t NearestRoot(int32_t magnitude) {
  return (magnitude >= 1) + (magnitude >= 3) + (magnitude >= 7) + (magnitude >= 13) +
         (magnitude >= 21) + (magnitude >= 31) + (magnitude >= 43) + (magnitude >= 57);
}

// Largest k <= 7 with k^2 <= magnitude.
ZPP_HD int32_t FloorRoot(float magnitude) {
  return (magnitude >= 1.0f) + (magnitude >= 4.0f) + (magnitude >= 9.0f) + (magnitude >= 16.0f) +
         (magnitude >= 25.0f) + (magnitude >= 36.0f) + (magnitude >= 49.0f);
}

// Code of t = x * inverse, nearest rounding.
ZPP_HD int32_t NearestCode(const QuantSpec& spec, float t) {
  const int32_t level = RoundToInt(t);
  if (spec.format == Format::kInt8) return level;
  int32_t code = level;
  if (spec.code == Code::kSqrt) code = level < 0 ? -NearestRoot(-level) : NearestRoot(level);
  return code > 7 ? 7 : code;  // +8 is the one level that has no code
}

ZPP_HD float FloorOf(float t) {
  const float nearest = static_cast<float>(RoundToInt(t));
  return nearest > t ? nearest - 1.0f : nearest;
}

// Random number of stochastic rounding in (0, 1) from 16 random bits.
ZPP_HD float UniformOf(uint16_t noise) { return (static_cast<float>(noise) + 0.5f) * 0x1p-16f; }

// One of the two codes around t; the upper one with the probability that makes the mean of the
// levels t.
ZPP_HD int32_t StochasticCode(const QuantSpec& spec, float t, uint16_t noise) {
  const float uniform = UniformOf(noise);
  const float top = TopLevel(spec);
  const float clamped = t > top ? top : (t < -top ? -top : t);  // only by the rounding of `inverse`
  if (spec.code == Code::kLinear) {
    const float floor = FloorOf(clamped);
    return static_cast<int32_t>(floor) + (uniform < clamped - floor ? 1 : 0);
  }
  const float magnitude = clamped < 0.0f ? -clamped : clamped;
  const int32_t root = FloorRoot(magnitude);
  const float level = static_cast<float>(root * root);
  const float gap = static_cast<float>(2 * root + 1);
  const int32_t code = root + (uniform * gap < magnitude - level ? 1 : 0);
  return clamped < 0.0f ? -code : code;
}

// The level of a code, an exact integer.
ZPP_HD float LevelOf(const QuantSpec& spec, int32_t code) {
  if (spec.code == Code::kLinear) return static_cast<float>(code);
  return static_cast<float>(code < 0 ? -code * code : code * code);
}

// Decoded value; a NaN scale makes the NaN that was written, on every device.
ZPP_HD float ValueOf(float scale, float level) { return scale != scale ? scale : scale * level; }

// The scale as it lies on the wire, and back. A NaN reads as the one NaN that is ever written.
ZPP_HD uint16_t BF16Scale(float scale) { return static_cast<uint16_t>(BitsOf(scale) >> 16); }
ZPP_HD float CanonicalScale(uint32_t bits) {
  return FloatOf((bits & 0x7fffffffu) > kInfinityBits ? kScaleNaNBits : bits);
}

// Narrowing of decoded values. The rounding of a scale may lift the largest finite element of a
// 16-bit vector by up to 2^-7 beyond the type's range: it becomes the largest finite value, not an
// infinity. What lies further out is infinite.
ZPP_HD uint16_t DecodedToF16(float value) {
  const uint32_t magnitude = BitsOf(value) & 0x7fffffffu;
  if (magnitude >= 0x477ff000u && magnitude < 0x4780f000u) {  // 65520 to below 66016
    return static_cast<uint16_t>((BitsOf(value) >> 16 & 0x8000u) | 0x7bffu);
  }
  return F16FromF32(value);
}
ZPP_HD uint16_t DecodedToBF16(float value) {
  const uint32_t magnitude = BitsOf(value) & 0x7fffffffu;
  if (magnitude >= 0x7f7f8000u && magnitude < kInfinityBits) {
    return static_cast<uint16_t>((BitsOf(value) >> 16 & 0x8000u) | 0x7f7fu);
  }
  return BF16FromF32(value);
}

}  // namespace zpp
