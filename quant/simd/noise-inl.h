// The random numbers of noise.h, a group of 128 elements at a time.
#if defined(ZPP_QUANT_SIMD_NOISE) == defined(HWY_TARGET_TOGGLE)
#ifdef ZPP_QUANT_SIMD_NOISE
#undef ZPP_QUANT_SIMD_NOISE
#else
#define ZPP_QUANT_SIMD_NOISE
#endif

#include "quant/noise.h"
#include "quant/simd/elems-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zpp::HWY_NAMESPACE {

using DW = hn::Repartition<uint64_t, DF>;
using VW = hn::Vec<DW>;

// The four words of a Philox state, each in the low halves of 64-bit lanes; the high halves are
// noise.
struct PhiloxState {
  VW w0, w1, w2, w3;
};

// What all counters of one key share.
struct PhiloxKeys {
  VW step_low, step_high;
  VW round0[kPhiloxRounds], round1[kPhiloxRounds];

  HWY_INLINE void Set(const NoiseKey& key) {
    const DW d;
    step_low = hn::Set(d, key.step);
    step_high = hn::Set(d, key.step >> 32);
    uint32_t key0 = static_cast<uint32_t>(key.seed);
    uint32_t key1 = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      round0[round] = hn::Set(d, key0);
      round1[round] = hn::Set(d, key1);
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
  }
};

HWY_INLINE VW Mul32(VW a, uint32_t b) {
  return hn::MulEven(hn::BitCast(DU(), a), hn::Set(DU(), b));
}

// States of the counters in `counter` after all rounds.
HWY_INLINE PhiloxState PhiloxWords(VW counter, const PhiloxKeys& keys) {
  PhiloxState x{counter, hn::ShiftRight<32>(counter), keys.step_low, keys.step_high};
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const VW product0 = Mul32(x.w0, kPhiloxMul0);
    const VW product1 = Mul32(x.w2, kPhiloxMul1);
    x = {hn::Xor3(hn::ShiftRight<32>(product1), x.w1, keys.round0[round]), product1,
         hn::Xor3(hn::ShiftRight<32>(product0), x.w3, keys.round1[round]), product0};
  }
  return x;
}

// Words of even and odd counters, in the order of the counters.
HWY_INLINE VU Interleave(VW even, VW odd) {
  const auto low = hn::And(even, hn::Set(DW(), 0xffffffffu));
  return hn::BitCast(DU(), hn::Or(low, hn::ShiftLeft<32>(odd)));
}

// UniformOf the low and the high halves. A mantissa of the 16 bits and a one after them is 1 +
// UniformOf, exactly.
HWY_INLINE void StoreUniforms(VU words, float* low, float* high) {
  const DF df;
  const DU du;
  const VU mask = hn::Set(du, 0x007fff80u);
  const VU one_and_half = hn::Set(du, 0x3f800040u);
  const VF one = hn::Set(df, 1.0f);
  const VU low_bits = hn::OrAnd(one_and_half, hn::ShiftLeft<7>(words), mask);
  const VU high_bits = hn::OrAnd(one_and_half, hn::ShiftRight<9>(words), mask);
  hn::StoreU(hn::Sub(hn::BitCast(df, low_bits), one), df, low);
  hn::StoreU(hn::Sub(hn::BitCast(df, high_bits), one), df, high);
}

// UniformOf the 128 elements of group `group`.
HWY_INLINE void FillGroup(uint64_t group, const PhiloxKeys& keys, float* out) {
  const DW d;
  for (int64_t lane = 0; lane < kNoiseCounters; lane += kLanes) {
    const uint64_t first = group * kNoiseCounters + static_cast<uint64_t>(lane);
    const VW even = hn::Add(hn::Iota(d, 0), hn::Iota(d, 0));
    const PhiloxState a = PhiloxWords(hn::Add(even, hn::Set(d, first)), keys);
    const PhiloxState b = PhiloxWords(hn::Add(even, hn::Set(d, first + 1)), keys);
    StoreUniforms(Interleave(a.w0, b.w0), out + lane, out + lane + 16);
    StoreUniforms(Interleave(a.w1, b.w1), out + lane + 32, out + lane + 48);
    StoreUniforms(Interleave(a.w2, b.w2), out + lane + 64, out + lane + 80);
    StoreUniforms(Interleave(a.w3, b.w3), out + lane + 96, out + lane + 112);
  }
}

// Numbers of `elems` elements from `first`; returns where in `buffer` (elems + 2 groups long) they
// begin.
HWY_INLINE const float* FillNoise(uint64_t first, int64_t elems, const PhiloxKeys& keys,
                                  float* buffer) {
  const int64_t skip = static_cast<int64_t>(first % kNoiseGroup_elems);
  uint64_t group = first / kNoiseGroup_elems;
  for (int64_t at = 0; at < skip + elems; at += kNoiseGroup_elems) {
    FillGroup(group++, keys, buffer + at);
  }
  return buffer + skip;
}

}  // namespace zpp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
