// Decode into fp32, fp16 or bf16, and onto fp32.
#if defined(ZPP_QUANT_SIMD_DECODE) == defined(HWY_TARGET_TOGGLE)
#ifdef ZPP_QUANT_SIMD_DECODE
#undef ZPP_QUANT_SIMD_DECODE
#else
#define ZPP_QUANT_SIMD_DECODE
#endif

#include "quant/simd/values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zpp::HWY_NAMESPACE {

// Narrowing as DecodedToF16 and DecodedToBF16.
HWY_INLINE void StoreDecoded(F32, float value, std::byte* p) { std::memcpy(p, &value, 4); }
HWY_INLINE void StoreDecoded(F16, float value, std::byte* p) {
  const uint16_t half = DecodedToF16(value);
  std::memcpy(p, &half, 2);
}
HWY_INLINE void StoreDecoded(BF16, float value, std::byte* p) {
  const uint16_t half = DecodedToBF16(value);
  std::memcpy(p, &half, 2);
}

// Magnitudes from here on need the narrowing rules of decoded values, which differ from IEEE's.
constexpr float SafeLimit(F32) { return std::numeric_limits<float>::infinity(); }
constexpr float SafeLimit(F16) { return 65504.0f; }
constexpr float SafeLimit(BF16) { return 0x1.fep127f; }

template <class T>
HWY_INLINE bool NarrowsSafely(T type, Format format, float scale) {
  const float top = format == Format::kInt8 ? 128.0f : 64.0f;
  return !(std::fabs(scale) * top > SafeLimit(type));
}

template <class Values, bool kStream, class T>
HWY_INLINE void DecodeBlock(T type, const QuantSpec& spec, float scale, const std::byte* codes,
                            int64_t elems, std::byte* out) {
  int64_t i = 0;
  if (HWY_LIKELY(NarrowsSafely(type, spec.format, scale))) {
    const Values values(spec.code, scale);
    for (; i + kGroup <= elems; i += kGroup) {
      const Group group = values.At(codes + Values::Bytes(i));
      StoreGroup<kStream, false>(type, group, out + i * T::kBytes);
    }
  }
  for (; i < elems; ++i) {
    StoreDecoded(type, ValueAt(spec, scale, codes, i), out + i * T::kBytes);
  }
}

template <class Values, bool kStream, class T>
void DecodeLoop(T type, const QuantSpec& spec, PayloadIn in, Vec out) {
  std::byte* data = static_cast<std::byte*>(out.data);
  int64_t block = 0;
  for (int64_t at = 0; at < out.elems; at += spec.block_elems, ++block) {
    const float scale = LoadScale(spec.scale_type, in.scales, block);
    const int64_t elems = std::min<int64_t>(spec.block_elems, out.elems - at);
    DecodeBlock<Values, kStream>(type, spec, scale, in.codes + Values::Bytes(at), elems,
                                 data + at * T::kBytes);
  }
}

// Past the caches at any address: a block into L1, then on.
template <class Values, class T>
void DecodeStaged(T type, const QuantSpec& spec, PayloadIn in, Vec out) {
  alignas(64) std::byte staged[kMaxBlock_elems * 4];
  std::byte* data = static_cast<std::byte*>(out.data);
  int64_t block = 0;
  for (int64_t at = 0; at < out.elems; at += spec.block_elems, ++block) {
    const float scale = LoadScale(spec.scale_type, in.scales, block);
    const int64_t elems = std::min<int64_t>(spec.block_elems, out.elems - at);
    DecodeBlock<Values, false>(type, spec, scale, in.codes + Values::Bytes(at), elems, staged);
    StreamCopy(staged, elems * T::kBytes, data + at * T::kBytes);
  }
}

void DecodeVector(const QuantSpec& spec, PayloadIn in, Vec out, bool stream) {
  WithType(out.dtype, [&](auto type) {
    WithValues(spec.format, [&](auto values) {
      using Values = decltype(values);
      if (!stream) return DecodeLoop<Values, false>(type, spec, in, out);
      const bool aligned = reinterpret_cast<uintptr_t>(out.data) % (kLanes * 4) == 0;
      if (aligned && out.dtype == DType::kF32) {
        return DecodeLoop<Values, true>(type, spec, in, out);
      }
      DecodeStaged<Values>(type, spec, in, out);
    });
  });
}

template <class Values>
void AccumulateLoop(const QuantSpec& spec, PayloadIn in, float* acc, int64_t total) {
  const DF df;
  int64_t block = 0;
  for (int64_t at = 0; at < total; at += spec.block_elems, ++block) {
    const float scale = LoadScale(spec.scale_type, in.scales, block);
    const int64_t elems = std::min<int64_t>(spec.block_elems, total - at);
    const std::byte* codes = in.codes + Values::Bytes(at);
    float* out = acc + at;
    TouchPageAhead(out, elems * 4);
    const Values values(spec.code, scale);
    int64_t i = 0;
    for (; i + kGroup <= elems; i += kGroup) {
      const Group group = values.At(codes + Values::Bytes(i));
      for (int64_t j = 0; j < kVecs; ++j) {
        float* p = out + i + j * kLanes;
        hn::StoreU(hn::Add(hn::LoadU(df, p), group.v[j]), df, p);
      }
    }
    for (; i < elems; ++i) out[i] += ValueAt(spec, scale, codes, i);
  }
}

void AccumulateVector(const QuantSpec& spec, PayloadIn in, float* acc, int64_t elems) {
  WithValues(spec.format,
             [&](auto values) { AccumulateLoop<decltype(values)>(spec, in, acc, elems); });
}

}  // namespace zpp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
