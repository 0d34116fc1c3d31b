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

// Values of a batch are read twice, the second time from L1. From the caches long batches are best,
// from memory short ones: it has nothing to do while ranges are taken of values that came ahead.
constexpr int64_t kBatch_elems = 4096;
constexpr int64_t kShortBatch_elems = 512;
constexpr int64_t kMaxBatch = kBatch_elems / kMinBlock_elems;

// Magnitude bits of the largest positive and the most negative element of each block, 0 where there
// is none.
struct Ranges {
  alignas(64) uint32_t positive[kMaxBatch];
  alignas(64) uint32_t negative[kMaxBatch];
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
using D4 = hn::Full128<uint32_t>;
using V4 = hn::Vec<D4>;
template <class D, class V>
HWY_INLINE V4 FoldTo128(D, V v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return FoldTo128(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Lanes: positive of x and y, negative of x and y.
HWY_INLINE V4 FoldPair(const Extremes& x, const Extremes& y) {
  return FoldTo128(DU(), Merge(Merge(x.positive, x.negative), Merge(y.positive, y.negative)));
}

// Blocks of `elems` elements, a multiple of 2 * kLanes. Entries up to the next multiple of 4 are
// written too: MakeScales of 4 blocks loads what was stored in one piece.
template <class T>
HWY_INLINE void RangesOf(T type, const std::byte* in, int64_t elems, int64_t count,
                         Ranges& ranges) {
  const int64_t bytes = elems * T::kBytes;
  for (int64_t b = 0; b < count; b += 4) {
    const std::byte* p = in + b * bytes;
    const Extremes x = ExtremesOf(type, p, elems);
    const V4 low = FoldPair(x, b + 1 < count ? ExtremesOf(type, p + bytes, elems) : x);
    V4 high = low;
    if (b + 2 < count) {
      const Extremes y = ExtremesOf(type, p + 2 * bytes, elems);
      high = FoldPair(y, b + 3 < count ? ExtremesOf(type, p + 3 * bytes, elems) : y);
    }
    hn::Store(hn::ConcatLowerLower(D4(), high, low), D4(), ranges.positive + b);
    hn::Store(hn::ConcatUpperUpper(D4(), high, low), D4(), ranges.negative + b);
  }
}

// MakeScale for `count` blocks, as many at a time as DFor has lanes; writes whole registers.
template <class As, class DFor>
HWY_INLINE void MakeScalesBy(DFor df, ScaleType type, const Ranges& ranges, int64_t count,
                             float* scales, float* inverses) {
  const hn::RebindToUnsigned<DFor> du;
  using V = hn::Vec<decltype(du)>;
  constexpr bool kNearest = As::kRounding == Rounding::kNearest;
  constexpr bool kSigned = As::kFormat == Format::kInt4 && kNearest;
  const int dropped = DroppedScaleBits(type);
  const uint32_t mask = (1u << dropped) - 1u;
  const auto top = hn::Set(df, TopLevel(As::Spec(type)));
  for (int64_t b = 0; b < count; b += static_cast<int64_t>(hn::MaxLanes(df))) {
    const V positive = hn::Load(du, ranges.positive + b);
    const V negative = hn::Load(du, ranges.negative + b);
    const V magnitude = hn::Max(positive, negative);
    V bits = hn::BitCast(du, hn::Div(hn::BitCast(df, magnitude), top));
    const V odd = hn::And(hn::ShiftRightSame(bits, dropped), hn::Set(du, 1));
    const V rounding = kNearest ? hn::Add(odd, hn::Set(du, mask >> 1)) : hn::Set(du, mask);
    bits = hn::AndNot(hn::Set(du, mask), hn::Add(bits, rounding));
    const auto overflows = hn::Gt(hn::Mul(hn::BitCast(df, bits), top), hn::Set(df, kLargestF32));
    bits = hn::Sub(bits, hn::IfThenElseZero(hn::RebindMask(du, overflows), hn::Set(du, mask + 1)));
    const auto usable = hn::Ge(hn::BitCast(df, bits), hn::Set(df, kMinScale));
    V sign = hn::Zero(du);
    if constexpr (kSigned) {
      sign = hn::IfThenZeroElse(hn::Gt(negative, positive), hn::Set(du, 0x80000000u));
    }
    const auto scale = hn::IfThenElseZero(usable, hn::BitCast(df, hn::Or(bits, sign)));
    const auto inverse = hn::IfThenElseZero(usable, hn::Div(hn::Set(df, 1.0f), scale));
    const auto finite = hn::RebindMask(df, hn::Lt(magnitude, hn::Set(du, kInfinityBits)));
    hn::Store(hn::IfThenElse(finite, scale, hn::BitCast(df, hn::Set(du, kScaleNaNBits))), df,
              scales + b);
    hn::Store(hn::IfThenElseZero(finite, inverse), df, inverses + b);
  }
}

template <class As>
HWY_INLINE void MakeScales(ScaleType type, const Ranges& ranges, int64_t count, float* scales,
                           float* inverses) {
  return count <= 4 ? MakeScalesBy<As>(hn::Full128<float>(), type, ranges, count, scales, inverses)
                    : MakeScalesBy<As>(DF(), type, ranges, count, scales, inverses);
}

HWY_INLINE void StoreScale(ScaleType type, float scale, std::byte* scales, int64_t block) {
  if (type == ScaleType::kF32) {
    std::memcpy(scales + block * 4, &scale, 4);
    return;
  }
  const uint16_t half = BF16Scale(scale);
  std::memcpy(scales + block * 2, &half, 2);
}

}  // namespace zpp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
