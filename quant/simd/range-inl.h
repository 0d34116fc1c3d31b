// Ranges of blocks and the scales that follow from them, many blocks at a time.
#if defined(ZPP_QUANT_SIMD_RANGE) == defined(HWY_TARGET_TOGGLE)
#ifdef ZPP_QUANT_SIMD_RANGE
#undef ZPP_QUANT_SIMD_RANGE
#else
#define ZPP_QUANT_SIMD_RANGE
#endif

#include "quant/simd/elems-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zpp::HWY_NAMESPACE {

// What one instance of the encoding loops is compiled for.
template <Format kF, Code kC, Rounding kR>
struct EncodeAs {
  static constexpr Format kFormat = kF;
  static constexpr Code kCode = kC;
  static constexpr Rounding kRounding = kR;
  // The parts of a spec that MakeScale looks at.
  static constexpr QuantSpec Spec(ScaleType type) {
    return {.format = kF, .code = kC, .rounding = kR, .scale_type = type};
  }
};

// Values of a batch are read twice, the second time from L1.
constexpr int64_t kBatch_elems = 4096;
constexpr int64_t kMaxBatch = kBatch_elems / kMinBlock_elems;

// Magnitude bits of the largest positive and the most negative element of each block, 0 where there
// is none.
struct Ranges {
  alignas(64) uint32_t positive[kMaxBatch + 2];
  alignas(64) uint32_t negative[kMaxBatch + 2];
};

// As signed integers the greatest of all bit patterns is the largest positive float; as unsigned
// ones the most negative float. Two integer maxima find both, and NaN with either sign.
struct Extremes {
  VU positive, negative;
};

template <class T>
HWY_INLINE Extremes ExtremesOf(T type, const std::byte* in, int64_t elems) {
  const DI di;
  const DU du;
  VI signed0 = hn::Zero(di), signed1 = signed0;
  VU unsigned0 = hn::Zero(du), unsigned1 = unsigned0;
  for (int64_t i = 0; i < elems; i += 2 * kLanes) {
    const std::byte* p = in + i * T::kBytes;
    const VF a = LoadF32(type, p);
    const VF b = LoadF32(type, p + kLanes * T::kBytes);
    signed0 = hn::Max(signed0, hn::BitCast(di, a));
    signed1 = hn::Max(signed1, hn::BitCast(di, b));
    unsigned0 = hn::Max(unsigned0, hn::BitCast(du, a));
    unsigned1 = hn::Max(unsigned1, hn::BitCast(du, b));
  }
  const VU most_negative = hn::Max(unsigned0, unsigned1);
  const VU is_negative = hn::BitCast(du, hn::BroadcastSignBit(hn::BitCast(di, most_negative)));
  return {hn::BitCast(du, hn::Max(signed0, signed1)),
          hn::And(hn::And(most_negative, is_negative), hn::Set(du, 0x7fffffffu))};
}

// Pairwise maxima of neighbouring lanes: a's in the even lanes, b's in the odd ones.
HWY_INLINE VU Merge(VU a, VU b) {
  return hn::Max(hn::InterleaveLower(DU(), a, b), hn::InterleaveUpper(DU(), a, b));
}

// Maximum over the 128-bit parts of a register.
template <class D, class V>
HWY_INLINE hn::VFromD<hn::Full128<uint32_t>> FoldTo128(D, V v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return FoldTo128(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Blocks of `elems` elements, a multiple of 2 * kLanes. May write one entry more than `count`.
template <class T>
HWY_INLINE void RangesOf(T type, const std::byte* in, int64_t elems, int64_t count,
                         Ranges& ranges) {
  const int64_t bytes = elems * T::kBytes;
  for (int64_t b = 0; b < count; b += 2) {
    const Extremes x = ExtremesOf(type, in + b * bytes, elems);
    const Extremes y = b + 1 < count ? ExtremesOf(type, in + (b + 1) * bytes, elems) : x;
    // Lanes after two merges: x.positive, y.positive, x.negative, y.negative.
    const VU merged = Merge(Merge(x.positive, x.negative), Merge(y.positive, y.negative));
    alignas(16) uint32_t lanes[4];
    hn::Store(FoldTo128(DU(), merged), hn::Full128<uint32_t>(), lanes);
    std::memcpy(ranges.positive + b, lanes, 8);
    std::memcpy(ranges.negative + b, lanes + 2, 8);
  }
}

// MakeScale for `count` blocks, kLanes at a time; writes up to kLanes - 1 entries more.
template <class As>
HWY_INLINE void MakeScales(ScaleType type, const Ranges& ranges, int64_t count, float* scales,
                           float* inverses) {
  const DF df;
  const DU du;
  constexpr bool kNearest = As::kRounding == Rounding::kNearest;
  constexpr bool kSigned = As::kFormat == Format::kInt4 && kNearest;
  const int dropped = DroppedScaleBits(type);
  const uint32_t mask = (1u << dropped) - 1u;
  const VF top = hn::Set(df, TopLevel(As::Spec(type)));
  for (int64_t b = 0; b < count; b += kLanes) {
    const VU positive = hn::Load(du, ranges.positive + b);
    const VU negative = hn::Load(du, ranges.negative + b);
    const VU magnitude = hn::Max(positive, negative);
    VU bits = hn::BitCast(du, hn::Div(hn::BitCast(df, magnitude), top));
    const VU odd = hn::And(hn::ShiftRightSame(bits, dropped), hn::Set(du, 1));
    const VU rounding = kNearest ? hn::Add(odd, hn::Set(du, mask >> 1)) : hn::Set(du, mask);
    bits = hn::AndNot(hn::Set(du, mask), hn::Add(bits, rounding));
    const auto overflows = hn::Gt(hn::Mul(hn::BitCast(df, bits), top), hn::Set(df, kLargestF32));
    bits = hn::Sub(bits, hn::IfThenElseZero(hn::RebindMask(du, overflows), hn::Set(du, mask + 1)));
    const auto usable = hn::Ge(hn::BitCast(df, bits), hn::Set(df, kMinScale));
    VU sign = hn::Zero(du);
    if constexpr (kSigned) {
      sign = hn::IfThenZeroElse(hn::Gt(negative, positive), hn::Set(du, 0x80000000u));
    }
    const VF scale = hn::IfThenElseZero(usable, hn::BitCast(df, hn::Or(bits, sign)));
    const VF inverse = hn::IfThenElseZero(usable, hn::Div(hn::Set(df, 1.0f), scale));
    const auto finite = hn::RebindMask(df, hn::Lt(magnitude, hn::Set(du, kInfinityBits)));
    hn::Store(hn::IfThenElse(finite, scale, hn::BitCast(df, hn::Set(du, kScaleNaNBits))), df,
              scales + b);
    hn::Store(hn::IfThenElseZero(finite, inverse), df, inverses + b);
  }
}

HWY_INLINE void StoreScales(ScaleType type, const float* scales, int64_t count, std::byte* out,
                            int64_t first) {
  if (type == ScaleType::kF32) {
    std::memcpy(out + first * 4, scales, static_cast<size_t>(count) * 4);
    return;
  }
  uint16_t halves[kMaxBatch];
  for (int64_t b = 0; b < count; ++b) halves[b] = BF16Scale(scales[b]);
  std::memcpy(out + first * 2, halves, static_cast<size_t>(count) * 2);
}

}  // namespace zpp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
