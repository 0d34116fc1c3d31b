// Encode: range, scale and codes of one block after the other.
#if defined(ZPP_QUANT_SIMD_ENCODE) == defined(HWY_TARGET_TOGGLE)
#ifdef ZPP_QUANT_SIMD_ENCODE
#undef ZPP_QUANT_SIMD_ENCODE
#else
#define ZPP_QUANT_SIMD_ENCODE
#endif

#include "quant/codec_kernels.h"
#include "quant/simd/noise-inl.h"
#include "quant/simd/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zpp::HWY_NAMESPACE {

// What one instance of the loops below is compiled for.
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

constexpr int64_t kPrefetch_bytes = 4096;

// As signed integers the greatest of all bit patterns is the largest positive float; as unsigned
// ones the most negative float. Two integer maxima find both, and NaN with either sign.
template <class T>
HWY_INLINE BlockScale RangeOf(T type, const QuantSpec& spec, const std::byte* in, int64_t elems) {
  const DI di;
  const DU du;
  VI signed0 = hn::Zero(di), signed1 = signed0;
  VU unsigned0 = hn::Zero(du), unsigned1 = unsigned0;
  for (int64_t i = 0; i < elems; i += 2 * kLanes) {
    const std::byte* p = in + i * T::kBytes;
    hwy::Prefetch(p + kPrefetch_bytes);
    if constexpr (T::kBytes * 2 * kLanes > 64) hwy::Prefetch(p + kPrefetch_bytes + 64);
    const VF a = LoadF32(type, p);
    const VF b = LoadF32(type, p + kLanes * T::kBytes);
    signed0 = hn::Max(signed0, hn::BitCast(di, a));
    signed1 = hn::Max(signed1, hn::BitCast(di, b));
    unsigned0 = hn::Max(unsigned0, hn::BitCast(du, a));
    unsigned1 = hn::Max(unsigned1, hn::BitCast(du, b));
  }
  const int32_t greatest = hn::GetLane(hn::MaxOfLanes(di, hn::Max(signed0, signed1)));
  const uint32_t negative = hn::GetLane(hn::MaxOfLanes(du, hn::Max(unsigned0, unsigned1)));
  return MakeScale(spec, static_cast<uint32_t>(greatest),
                   (negative >> 31) != 0 ? negative & 0x7fffffffu : 0u);
}

// As StochasticCode, in 32-bit lanes.
template <class As>
HWY_INLINE VI StochasticCodes(VF t, const float* uniform) {
  const DF df;
  const DI di;
  const VF u = hn::LoadU(df, uniform);
  const VF top = hn::Set(df, TopLevel(As::Spec(ScaleType::kBF16)));
  const VF clamped = hn::Max(hn::Min(t, top), hn::Neg(top));
  if constexpr (As::kCode == Code::kLinear) {
    const VI nearest = hn::NearestInt(clamped);
    const VF back = hn::ConvertTo(df, nearest);
    const VI above = hn::VecFromMask(di, hn::RebindMask(di, hn::Gt(back, clamped)));  // -1 or 0
    const VI floor = hn::Add(nearest, above);
    const VF fraction = hn::Sub(clamped, hn::ConvertTo(df, floor));
    return hn::Sub(floor, hn::VecFromMask(di, hn::RebindMask(di, hn::Lt(u, fraction))));
  } else {
    const VF magnitude = hn::Abs(clamped);
    VI root = hn::Zero(di);
    for (int k = 1; k <= 7; ++k) {
      const auto reached = hn::Ge(magnitude, hn::Set(df, static_cast<float>(k * k)));
      root = hn::Sub(root, hn::VecFromMask(di, hn::RebindMask(di, reached)));
    }
    const VF base = hn::ConvertTo(df, root);
    const VF gap = hn::Add(hn::Add(base, base), hn::Set(df, 1.0f));
    const VF rest = hn::Sub(magnitude, hn::Mul(base, base));
    const auto up = hn::RebindMask(di, hn::Lt(hn::Mul(u, gap), rest));
    const VI code = hn::Sub(root, hn::VecFromMask(di, up));
    const VI sign = hn::BroadcastSignBit(hn::BitCast(di, clamped));
    return hn::Sub(hn::Xor(code, sign), sign);
  }
}

template <class As, class T>
HWY_INLINE VI CodesAt(T type, const std::byte* in, VF inverse, const float* uniform) {
  const VF t = hn::Mul(LoadF32(type, in), inverse);
  if constexpr (As::kRounding == Rounding::kNearest) {
    return hn::NearestInt(t);
  } else {
    return StochasticCodes<As>(t, uniform);
  }
}

// Codes of `elems` elements, a multiple of kStep.
template <class As, class T>
HWY_INLINE void EncodeCodes(T type, const std::byte* in, int64_t elems, float inverse_scale,
                            const float* uniform, std::byte* codes) {
  const VF inverse = hn::Set(DF(), inverse_scale);
  constexpr int64_t kRow_bytes = kLanes * T::kBytes;
  for (int64_t i = 0; i < elems; i += kStep) {
    const std::byte* p = in + i * T::kBytes;
    VB bytes = PackBytes(CodesAt<As>(type, p, inverse, uniform + i),
                         CodesAt<As>(type, p + kRow_bytes, inverse, uniform + i + kLanes),
                         CodesAt<As>(type, p + 2 * kRow_bytes, inverse, uniform + i + 2 * kLanes),
                         CodesAt<As>(type, p + 3 * kRow_bytes, inverse, uniform + i + 3 * kLanes));
    if constexpr (As::kFormat == Format::kInt8) {
      hn::StoreU(bytes, DB(), reinterpret_cast<int8_t*>(codes + i));
    } else {
      if constexpr (As::kRounding == Rounding::kNearest) {
        bytes = As::kCode == Code::kSqrt ? SqrtCodes(bytes) : hn::Min(bytes, hn::Set(DB(), 7));
      }
      StoreNibbles(bytes, codes + i / 2);
    }
  }
}

template <class As>
constexpr int64_t CodeBytes(int64_t elems) {
  return As::kFormat == Format::kInt8 ? elems : (elems + 1) / 2;
}

// One block whose length is a multiple of kStep. Returns its scale.
template <class As, class T>
HWY_INLINE float EncodeBlock(T type, ScaleType scale_type, const std::byte* in, int64_t elems,
                             const float* uniform, std::byte* codes) {
  const BlockScale scale = RangeOf(type, As::Spec(scale_type), in, elems);
  if (HWY_UNLIKELY(scale.inverse == 0.0f)) {
    std::memset(codes, 0, static_cast<size_t>(CodeBytes<As>(elems)));
  } else {
    EncodeCodes<As>(type, in, elems, scale.inverse, uniform, codes);
  }
  return scale.scale;
}

// Any other length: through buffers, padded with zeros, which change no range.
template <class As, class T>
HWY_NOINLINE float EncodePadded(T type, ScaleType scale_type, const std::byte* in, int64_t elems,
                                const float* uniform, std::byte* codes) {
  alignas(64) std::byte values[(kMaxBlock_elems + kStep) * 4];
  alignas(64) std::byte padded[kMaxBlock_elems + kStep];
  const int64_t rounded = (elems + kStep - 1) / kStep * kStep;
  std::memcpy(values, in, static_cast<size_t>(elems * T::kBytes));
  std::memset(values + elems * T::kBytes, 0, static_cast<size_t>((rounded - elems) * T::kBytes));
  const float scale = EncodeBlock<As>(type, scale_type, values, rounded, uniform, padded);
  std::memcpy(codes, padded, static_cast<size_t>(CodeBytes<As>(elems)));
  return scale;
}

template <class As, class T>
void EncodeLoop(const QuantSpec& spec, ConstVec in, PayloadOut out, const NoiseKey& noise) {
  constexpr bool kNoisy = As::kRounding == Rounding::kStochastic;
  alignas(64) float buffer[kNoisy ? kMaxBlock_elems + kStep + 2 * kNoiseGroup_elems : 1];
  const float* uniform = buffer;
  const std::byte* data = static_cast<const std::byte*>(in.data);
  int64_t block = 0;
  for (int64_t at = 0; at < in.elems; at += spec.block_elems, ++block) {
    const int64_t elems = std::min<int64_t>(spec.block_elems, in.elems - at);
    const std::byte* values = data + at * T::kBytes;
    std::byte* codes = out.codes + CodeBytes<As>(at);
    if constexpr (kNoisy) {
      const int64_t padded = (elems + kStep - 1) / kStep * kStep;
      uniform = FillNoise(noise.first_elem + static_cast<uint64_t>(at), padded, noise, buffer);
    }
    const float scale = elems % kStep == 0
                            ? EncodeBlock<As>(T(), spec.scale_type, values, elems, uniform, codes)
                            : EncodePadded<As>(T(), spec.scale_type, values, elems, uniform, codes);
    StoreScale(spec.scale_type, scale, out.scales, block);
  }
}

template <Format kF, Code kC, Rounding kR>
void EncodeTyped(const QuantSpec& spec, ConstVec in, PayloadOut out, const NoiseKey& noise) {
  WithType(in.dtype, [&](auto type) {
    EncodeLoop<EncodeAs<kF, kC, kR>, decltype(type)>(spec, in, out, noise);
  });
}

void EncodeVector(const QuantSpec& spec, ConstVec in, PayloadOut out, const NoiseKey& noise) {
  constexpr Code kLinear = Code::kLinear, kSqrt = Code::kSqrt;
  constexpr Rounding kNearest = Rounding::kNearest, kStochastic = Rounding::kStochastic;
  const bool nearest = spec.rounding == kNearest;
  if (spec.format == Format::kInt8) {
    return nearest ? EncodeTyped<Format::kInt8, kLinear, kNearest>(spec, in, out, noise)
                   : EncodeTyped<Format::kInt8, kLinear, kStochastic>(spec, in, out, noise);
  }
  if (spec.code == kLinear) {
    return nearest ? EncodeTyped<Format::kInt4, kLinear, kNearest>(spec, in, out, noise)
                   : EncodeTyped<Format::kInt4, kLinear, kStochastic>(spec, in, out, noise);
  }
  return nearest ? EncodeTyped<Format::kInt4, kSqrt, kNearest>(spec, in, out, noise)
                 : EncodeTyped<Format::kInt4, kSqrt, kStochastic>(spec, in, out, noise);
}

}  // namespace zpp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
