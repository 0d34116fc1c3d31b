// Values of a run of codes that share one scale, kGroup at a time.
#if defined(ZPP_QUANT_SIMD_VALUES) == defined(HWY_TARGET_TOGGLE)
#ifdef ZPP_QUANT_SIMD_VALUES
#undef ZPP_QUANT_SIMD_VALUES
#else
#define ZPP_QUANT_SIMD_VALUES
#endif

#include "quant/codec_kernels.h"
#include "quant/simd/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zpp::HWY_NAMESPACE {

// Elements that one call yields; every block is a multiple of it.
constexpr int64_t kVecs = kLanes == 16 ? 2 : 4;
constexpr int64_t kGroup = kVecs * kLanes;
static_assert(kMinBlock_elems % kGroup == 0);

struct Group {
  VF v[kVecs];
};

// kMayBeNaN = false: at most the NaN that scales have, which plain rounding keeps.
template <bool kStream, bool kMayBeNaN, class T>
HWY_INLINE void StoreGroup(T type, const Group& group, std::byte* p) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (std::is_same_v<T, BF16>) {
    alignas(64) static constexpr uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                        23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                        45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    const __m512i packed =
        _mm512_permutex2var_epi16(RoundToBF16<kMayBeNaN>(group.v[0]).raw, _mm512_load_si512(kUpper),
                                  RoundToBF16<kMayBeNaN>(group.v[1]).raw);
    if constexpr (kStream) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(p), packed);
    } else {
      _mm512_storeu_si512(p, packed);
    }
    return;
  }
#endif
  for (int64_t j = 0; j < kVecs; ++j)
    StoreF32<kStream>(type, group.v[j], p + j * kLanes * T::kBytes);
}

// Bytes(e) of the classes below is what the codes of e elements take, e a multiple of kGroup.
struct PlainValues {
  template <class T>
  static HWY_INLINE Group Load(T type, const std::byte* p) {
    Group group;
    for (int64_t j = 0; j < kVecs; ++j) group.v[j] = LoadF32(type, p + j * kLanes * T::kBytes);
    return group;
  }
};

class Int8Values {
 public:
  static constexpr Format kFormat = Format::kInt8;
  Int8Values() = default;
  HWY_INLINE Int8Values(Code, float scale) : scale_(hn::Set(DF(), scale)) {}

  static constexpr int64_t Bytes(int64_t elems) { return elems; }
  HWY_INLINE Group At(const std::byte* codes) const {
    const hn::Rebind<int8_t, DF> d8;
    const int8_t* p = reinterpret_cast<const int8_t*>(codes);
    Group group;
    for (int64_t j = 0; j < kVecs; ++j) {
      const VI level = hn::PromoteTo(DI(), hn::LoadU(d8, p + j * kLanes));
      group.v[j] = hn::Mul(hn::ConvertTo(DF(), level), scale_);
    }
    return group;
  }

 private:
  VF scale_;
};

// Levels by the nibble that stands for them.
alignas(16) inline constexpr int8_t kNibbleLevels[2][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1},
    {0, 1, 4, 9, 16, 25, 36, 49, -64, -49, -36, -25, -16, -9, -4, -1}};

class Int4Values {
 public:
  static constexpr Format kFormat = Format::kInt4;
  Int4Values() = default;
  static constexpr int64_t Bytes(int64_t elems) { return elems / 2; }

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // A register holds the values of all 16 codes.
  HWY_INLINE Int4Values(Code code, float scale) {
    const hn::Rebind<int8_t, DF> d8;
    const auto levels = hn::PromoteTo(DI(), hn::Load(d8, kNibbleLevels[static_cast<int>(code)]));
    table_ = hn::Mul(hn::ConvertTo(DF(), levels), hn::Set(DF(), scale));
  }

  HWY_INLINE Group At(const std::byte* codes) const {
    return {{Lookup(codes), Lookup(codes + kLanes / 2)}};
  }

 private:
  // Only the low four bits of a lane choose.
  HWY_INLINE VF Lookup(const std::byte* codes) const {
    __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
#if HWY_TARGET == HWY_AVX3_DL
    alignas(64) static constexpr uint8_t kShift[64] = {
        0,  0, 0,  0, 4,  0, 0,  0, 8,  0, 0,  0, 12, 0, 0,  0, 16, 0, 0,  0, 20, 0,
        0,  0, 24, 0, 0,  0, 28, 0, 0,  0, 32, 0, 0,  0, 36, 0, 0,  0, 40, 0, 0,  0,
        44, 0, 0,  0, 48, 0, 0,  0, 52, 0, 0,  0, 56, 0, 0,  0, 60, 0, 0,  0};
    const __m512i index =
        _mm512_multishift_epi64_epi8(_mm512_load_si512(kShift), _mm512_broadcastq_epi64(bytes));
#else
    const __m512i wide = _mm512_cvtepu8_epi64(bytes);  // the odd element into the upper lane
    const __m512i index = _mm512_or_si512(wide, _mm512_slli_epi64(wide, 28));
#endif
    return VF{_mm512_permutexvar_ps(index, table_.raw)};
  }
  VF table_;
#else
  // Levels are looked up in bytes, then widened like those of int8.
  HWY_INLINE Int4Values(Code code, float scale)
      : levels_(hn::LoadDup128(DB(), kNibbleLevels[static_cast<int>(code)])),
        bytes_(Code::kLinear, scale) {}

  HWY_INLINE Group At(const std::byte* codes) const {
    const hn::Half<DBU> half;
    const hn::Repartition<uint16_t, DF> d16;
    const auto wide = hn::PromoteTo(d16, hn::LoadU(half, reinterpret_cast<const uint8_t*>(codes)));
    const auto nibbles = hn::And(hn::Or(wide, hn::ShiftLeft<4>(wide)), hn::Set(d16, 0x0f0f));
    alignas(64) int8_t levels[kStep];
    hn::Store(hn::TableLookupBytes(levels_, hn::BitCast(DB(), nibbles)), DB(), levels);
    return bytes_.At(reinterpret_cast<const std::byte*>(levels));
  }

 private:
  VB levels_;
  Int8Values bytes_;
#endif
};

// Single values, for the tail of the last block.
HWY_INLINE float ValueAt(const QuantSpec& spec, float scale, const std::byte* codes, int64_t i) {
  int32_t code;
  if (spec.format == Format::kInt8) {
    code = static_cast<int8_t>(codes[i]);
  } else {
    const int32_t nibble = std::to_integer<int32_t>(codes[i / 2]) >> (i % 2 * 4) & 15;
    code = nibble >= 8 ? nibble - 16 : nibble;
  }
  return ValueOf(scale, LevelOf(spec, code));
}

template <class Fn>
HWY_INLINE void WithValues(Format format, Fn fn) {
  if (format == Format::kInt8) {
    fn(Int8Values());
  } else {
    fn(Int4Values());
  }
}

}  // namespace zpp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
