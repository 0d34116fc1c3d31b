// Four registers of codes in 32-bit lanes become bytes, nibbles, and back.
#if defined(ZPP_QUANT_SIMD_PACK) == defined(HWY_TARGET_TOGGLE)
#ifdef ZPP_QUANT_SIMD_PACK
#undef ZPP_QUANT_SIMD_PACK
#else
#define ZPP_QUANT_SIMD_PACK
#endif

#include "quant/simd/elems-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zpp::HWY_NAMESPACE {

// Bytes of a register: the codes of kStep elements.
using DB = hn::Repartition<int8_t, DF>;
using DBU = hn::Repartition<uint8_t, DF>;
using VB = hn::Vec<DB>;
constexpr int64_t kStep = 4 * kLanes;

// Past the caches, but for what shares a row of a register's size with other bytes.
HWY_INLINE void StreamCopy(const std::byte* from, int64_t bytes, std::byte* to) {
  constexpr int64_t kRow_bytes = kLanes * 4;
  const int64_t head = std::min<int64_t>(bytes, -reinterpret_cast<intptr_t>(to) & (kRow_bytes - 1));
  std::memcpy(to, from, static_cast<size_t>(head));
  int64_t i = head;
  const DBU d;
  for (; i + kRow_bytes <= bytes; i += kRow_bytes) {
    hn::Stream(hn::LoadU(d, reinterpret_cast<const uint8_t*>(from + i)), d,
               reinterpret_cast<uint8_t*>(to + i));
  }
  std::memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
}

// The low bytes of four registers, in order. Every lane is an integer in -128..127 plus
// kRoundingBias.
HWY_INLINE VB PackBytes(VI a, VI b, VI c, VI d) {
#if HWY_TARGET == HWY_AVX3_DL
  alignas(64) static constexpr uint8_t kPick[64] = {
      0,  4,  8,  12, 16, 20, 24, 28, 32, 36,  40,  44,  48,  52,  56,  60,
      64, 68, 72, 76, 80, 84, 88, 92, 96, 100, 104, 108, 112, 116, 120, 124};
  const __m512i pick = _mm512_load_si512(kPick);
  const __m512i ab = _mm512_permutex2var_epi8(a.raw, pick, b.raw);
  const __m512i cd = _mm512_permutex2var_epi8(c.raw, pick, d.raw);
  return VB{_mm512_inserti64x4(ab, _mm512_castsi512_si256(cd), 1)};
#else
  const VI bias = hn::Set(DI(), kRoundingBias);
  a = hn::Sub(a, bias);
  b = hn::Sub(b, bias);
  c = hn::Sub(c, bias);
  d = hn::Sub(d, bias);
#if HWY_TARGET == HWY_AVX3
  const __m512i packed =
      _mm512_packs_epi16(_mm512_packs_epi32(a.raw, b.raw), _mm512_packs_epi32(c.raw, d.raw));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return VB{_mm512_permutexvar_epi32(order, packed)};
#elif HWY_TARGET == HWY_AVX2
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(a.raw, b.raw), _mm256_packs_epi32(c.raw, d.raw));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return VB{_mm256_permutevar8x32_epi32(packed, order)};
#elif HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
  return VB{_mm_packs_epi16(_mm_packs_epi32(a.raw, b.raw), _mm_packs_epi32(c.raw, d.raw))};
#else
  const hn::Rebind<int8_t, DF> d8;
  alignas(64) int8_t bytes[kStep];
  hn::StoreU(hn::DemoteTo(d8, a), d8, bytes);
  hn::StoreU(hn::DemoteTo(d8, b), d8, bytes + kLanes);
  hn::StoreU(hn::DemoteTo(d8, c), d8, bytes + 2 * kLanes);
  hn::StoreU(hn::DemoteTo(d8, d), d8, bytes + 3 * kLanes);
  return hn::LoadU(DB(), bytes);
#endif
#endif  // HWY_AVX3_DL
}

// Codes in bytes -> kStep / 2 bytes of nibbles, the even element in the low one.
HWY_INLINE void StoreNibbles(VB codes, std::byte* out) {
  const hn::Repartition<uint16_t, DF> d16;
  const auto pairs = hn::And(hn::BitCast(d16, codes), hn::Set(d16, 0x0f0f));
  const auto merged = hn::Or(pairs, hn::ShiftRight<4>(pairs));  // the result is the low byte
#if HWY_TARGET == HWY_AVX3_DL
  alignas(64) static constexpr uint8_t kEven[64] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                    22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42,
                                                    44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
  const __m512i packed = _mm512_permutexvar_epi8(_mm512_load_si512(kEven), merged.raw);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_castsi512_si256(packed));
#else
  const hn::Half<DBU> d8;
  const auto clean = hn::And(merged, hn::Set(d16, 0x00ff));
  const hn::RebindToSigned<decltype(d16)> di16;
  hn::StoreU(hn::DemoteTo(d8, hn::BitCast(di16, clean)), d8, reinterpret_cast<uint8_t*>(out));
#endif
}

// Levels -64..64 of the sqrt code -> codes -8..7, as NearestCode does it.
HWY_INLINE VB SqrtCodes(VB levels) {
#if HWY_TARGET == HWY_AVX3_DL
  // Indexed by the low seven bits: 0..63 and -64..-1. 64 has the code of 63.
  alignas(64) static constexpr int8_t kCodes[128] = {
      0,  1,  1,  2,  2,  2,  2,  3,  3,  3,  3,  3,  3,  4,  4,  4,  4,  4,  4,  4,  4,  5,
      5,  5,  5,  5,  5,  5,  5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  6,  7,
      7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  -8, -8,
      -8, -8, -8, -8, -8, -8, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -7, -6, -6,
      -6, -6, -6, -6, -6, -6, -6, -6, -6, -6, -5, -5, -5, -5, -5, -5, -5, -5, -5, -5, -4, -4,
      -4, -4, -4, -4, -4, -4, -3, -3, -3, -3, -3, -3, -2, -2, -2, -2, -1, -1};
  const VB index = hn::Min(levels, hn::Set(DB(), 63));
  return VB{_mm512_permutex2var_epi8(_mm512_load_si512(kCodes), index.raw,
                                     _mm512_load_si512(kCodes + 64))};
#else
  // Below 16 by table; above, each run of eight levels holds at most one border.
  const DB d;
  alignas(16) static constexpr int8_t kSmall[16] = {0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 4, 4, 4};
  alignas(16) static constexpr int8_t kMore[16] = {0, 0, 0, 1, 2, 2, 3, 3, 4};
  alignas(16) static constexpr int8_t kBelow[16] = {99, 99, 20, 30, 99, 42, 99, 56, 99};
  const VB magnitude = hn::Abs(levels);
  const hn::Repartition<uint16_t, DF> d16;
  const VB run =
      hn::And(hn::BitCast(d, hn::ShiftRight<3>(hn::BitCast(d16, magnitude))), hn::Set(d, 15));
  const VB small =
      hn::TableLookupBytes(hn::LoadDup128(d, kSmall), hn::Min(magnitude, hn::Set(d, 15)));
  const VB more = hn::TableLookupBytes(hn::LoadDup128(d, kMore), run);
  const VB below = hn::TableLookupBytes(hn::LoadDup128(d, kBelow), run);
  const VB beyond = hn::VecFromMask(d, hn::Gt(magnitude, below));  // -1 or 0
  const VB root = hn::Sub(hn::Add(small, more), beyond);
#if HWY_TARGET == HWY_AVX2
  return hn::Min(VB{_mm256_sign_epi8(root.raw, levels.raw)}, hn::Set(d, 7));
#elif HWY_TARGET == HWY_SSE4
  return hn::Min(VB{_mm_sign_epi8(root.raw, levels.raw)}, hn::Set(d, 7));
#else
  const VB sign = hn::BroadcastSignBit(levels);
  return hn::Min(hn::Sub(hn::Xor(root, sign), sign), hn::Set(d, 7));
#endif
#endif
}

}  // namespace zpp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
