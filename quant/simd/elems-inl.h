// Loads and stores of fp32, fp16 and bf16 as fp32 registers.
#if defined(ZPP_QUANT_SIMD_ELEMS) == defined(HWY_TARGET_TOGGLE)
#ifdef ZPP_QUANT_SIMD_ELEMS
#undef ZPP_QUANT_SIMD_ELEMS
#else
#define ZPP_QUANT_SIMD_ELEMS
#endif

#include <algorithm>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "quant/codec_math.h"

HWY_BEFORE_NAMESPACE();
namespace zpp::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;

constexpr int64_t kLanes = hn::MaxLanes(DF());
// Does the target have conversions of fp16 in hardware?
constexpr bool kHasF16 = HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON;

// One type per DType, so that loops are compiled for each.
struct F32 {
  static constexpr int64_t kBytes = 4;
};
struct F16 {
  static constexpr int64_t kBytes = 2;
};
struct BF16 {
  static constexpr int64_t kBytes = 2;
};

HWY_INLINE VF LoadF32(F32, const std::byte* p) {
  return hn::LoadU(DF(), reinterpret_cast<const float*>(p));
}

HWY_INLINE VF LoadF32(BF16, const std::byte* p) {
  const hn::Rebind<hwy::bfloat16_t, DF> d16;
  return hn::PromoteTo(DF(), hn::LoadU(d16, reinterpret_cast<const hwy::bfloat16_t*>(p)));
}

HWY_INLINE VF LoadF32(F16, const std::byte* p) {
  if constexpr (kHasF16) {
    const hn::Rebind<hwy::float16_t, DF> d16;
    return hn::PromoteTo(DF(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
  } else {
    uint16_t halves[kLanes];
    float values[kLanes];
    std::memcpy(halves, p, sizeof halves);
    for (int64_t i = 0; i < kLanes; ++i) values[i] = F32FromF16(halves[i]);
    return hn::LoadU(DF(), values);
  }
}

// For each run of a vector that is read in order from memory: fetches one line of the page after
// next when the run is the first of its page. The CPU's own prefetchers end with the page, and the
// first access to the next would wait for its address to be translated. Fetching more than that
// line was slower.
HWY_INLINE void TouchPageAhead(const void* run, int64_t bytes) {
  constexpr uintptr_t kPage_bytes = 4096;
  const uintptr_t at = reinterpret_cast<uintptr_t>(run);
  if (at % kPage_bytes >= static_cast<uintptr_t>(bytes)) return;
  hwy::Prefetch(reinterpret_cast<const std::byte*>((at / kPage_bytes + 2) * kPage_bytes));
}

// Streaming needs an address that is a multiple of the register's size.
template <bool kStream>
HWY_INLINE void StoreF32(F32, VF v, std::byte* p) {
  if constexpr (kStream) {
    hn::Stream(v, DF(), reinterpret_cast<float*>(p));
  } else {
    hn::StoreU(v, DF(), reinterpret_cast<float*>(p));
  }
}

template <bool kStream>
HWY_INLINE void StoreHalves(VU halves, std::byte* p) {
  const hn::Rebind<uint16_t, DF> d16;
  const auto packed = hn::DemoteTo(d16, hn::BitCast(DI(), halves));
  // Highway streams 16 bytes whatever the vector's length: with four lanes that is too many.
  if constexpr (kStream && kLanes >= 8) {
    hn::Stream(packed, d16, reinterpret_cast<uint16_t*>(p));
  } else {
    hn::StoreU(packed, d16, reinterpret_cast<uint16_t*>(p));
  }
}

// As BF16FromF32, in the upper halves of the lanes.
template <bool kMayBeNaN>
HWY_INLINE VU RoundToBF16(VF v) {
  const DU du;
  const VU bits = hn::BitCast(du, v);
  const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const VU rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff)));
  if constexpr (!kMayBeNaN) return rounded;
  const VU quiet = hn::Or(bits, hn::Set(du, 0x00400000u));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
}

template <bool kStream>
HWY_INLINE void StoreF32(BF16, VF v, std::byte* p) {
  StoreHalves<kStream>(hn::ShiftRight<16>(RoundToBF16<true>(v)), p);
}

// As F16FromF32.
template <bool kStream>
HWY_INLINE void StoreF32(F16, VF v, std::byte* p) {
  if constexpr (kHasF16) {
    const hn::Rebind<hwy::float16_t, DF> d16;
    const hn::Rebind<uint16_t, DF> du16;
    const auto packed = hn::BitCast(du16, hn::DemoteTo(d16, v));
    hn::StoreU(packed, du16, reinterpret_cast<uint16_t*>(p));
  } else {
    uint16_t halves[kLanes];
    float values[kLanes];
    hn::StoreU(v, DF(), values);
    for (int64_t i = 0; i < kLanes; ++i) halves[i] = F16FromF32(values[i]);
    std::memcpy(p, halves, sizeof halves);
  }
}

// The first `elems` < kLanes values, zeros after them; never reads further.
template <class T>
HWY_INLINE VF LoadTail(T type, const std::byte* p, int64_t elems) {
  alignas(64) std::byte buffer[kLanes * 4] = {};
  std::memcpy(buffer, p, static_cast<size_t>(elems * T::kBytes));
  return LoadF32(type, buffer);
}

template <class T>
HWY_INLINE void StoreTail(T type, VF v, std::byte* p, int64_t elems) {
  alignas(64) std::byte buffer[kLanes * 4];
  StoreF32<false>(type, v, buffer);
  std::memcpy(p, buffer, static_cast<size_t>(elems * T::kBytes));
}

// Calls fn with the type tag of a dtype.
template <class Fn>
HWY_INLINE void WithType(DType dtype, Fn fn) {
  switch (dtype) {
    case DType::kF32:
      return fn(F32());
    case DType::kF16:
      return fn(F16());
    case DType::kBF16:
      return fn(BF16());
    case DType::kByte:
      return;
  }
}

// A scale as it lies on the wire.
HWY_INLINE float LoadScale(ScaleType type, const std::byte* scales, int64_t block) {
  if (type == ScaleType::kF32) {
    uint32_t bits;
    std::memcpy(&bits, scales + block * 4, 4);
    return CanonicalScale(bits);
  }
  uint16_t half;
  std::memcpy(&half, scales + block * 2, 2);
  return CanonicalScale(static_cast<uint32_t>(half) << 16);
}

}  // namespace zpp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
