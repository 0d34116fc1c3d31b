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

// What all counters of one key share. Step and high word of the counter are the same in a whole
// group, so half of the first two rounds is too.
struct PhiloxKeys {
  VW first2;                     // round 0, word 2: step and key
  VW second0, second2, second3;  // round 1: what the words get
  VW round0[kPhiloxRounds - 1], round1[kPhiloxRounds - 1];
  VU last0, last1;
  NoiseKey key;
  uint32_t counter_high = 0;

  HWY_INLINE void Set(const NoiseKey& noise) {
    const DW d;
    key = noise;
    uint32_t key0 = static_cast<uint32_t>(key.seed);
    uint32_t key1 = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < kPhiloxRounds - 1; ++round) {
      round0[round] = hn::Set(d, key0);
      round1[round] = hn::Set(d, key1);
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
    last0 = hn::Set(DU(), key0);
    last1 = hn::Set(DU(), key1);
    SetCounterHigh(0);
  }

  void SetCounterHigh(uint32_t high) {
    const DW d;
    counter_high = high;
    const uint32_t key0 = static_cast<uint32_t>(key.seed);
    const uint32_t key1 = static_cast<uint32_t>(key.seed >> 32);
    const uint64_t step_product = uint64_t{kPhiloxMul1} * static_cast<uint32_t>(key.step);
    const uint32_t word0 = static_cast<uint32_t>(step_product >> 32) ^ high ^ key0;
    const uint64_t product = uint64_t{kPhiloxMul0} * word0;
    first2 = hn::Set(d, static_cast<uint32_t>(key.step >> 32) ^ key1);
    second0 = hn::Set(d, static_cast<uint32_t>(step_product) ^ (key0 + kPhiloxWeyl0));
    second2 = hn::Set(d, static_cast<uint32_t>(product >> 32) ^ (key1 + kPhiloxWeyl1));
    second3 = hn::Set(d, static_cast<uint32_t>(product));
  }
};

HWY_INLINE VW Mul32(VW a, uint32_t b) {
  return hn::MulEven(hn::BitCast(DU(), a), hn::Set(DU(), b));
}

// States of the counters whose low words are in `counter` before the last round.
HWY_INLINE PhiloxState PhiloxWords(VW counter, const PhiloxKeys& keys) {
  const VW first = Mul32(counter, kPhiloxMul0);
  const VW second = Mul32(hn::Xor(hn::ShiftRight<32>(first), keys.first2), kPhiloxMul1);
  PhiloxState x{hn::Xor(hn::ShiftRight<32>(second), keys.second0), second,
                hn::Xor(first, keys.second2), keys.second3};
  for (int round = 2; round < kPhiloxRounds - 1; ++round) {
    const VW product0 = Mul32(x.w0, kPhiloxMul0);
    const VW product1 = Mul32(x.w2, kPhiloxMul1);
    x = {hn::Xor3(hn::ShiftRight<32>(product1), x.w1, keys.round0[round]), product1,
         hn::Xor3(hn::ShiftRight<32>(product0), x.w3, keys.round1[round]), product0};
  }
  return x;
}

// Low and high words of even and odd counters, in the order of the counters.
HWY_INLINE VU LowWords(VW even, VW odd) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VU{_mm512_mask_shuffle_epi32(even.raw, 0xaaaa, odd.raw, _MM_PERM_CCAA)};
#else
  return hn::OddEven(hn::BitCast(DU(), hn::ShiftLeft<32>(odd)), hn::BitCast(DU(), even));
#endif
}
HWY_INLINE VU HighWords(VW even, VW odd) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VU{_mm512_mask_shuffle_epi32(odd.raw, 0x5555, even.raw, _MM_PERM_DDBB)};
#else
  return hn::OddEven(hn::BitCast(DU(), odd), hn::BitCast(DU(), hn::ShiftRight<32>(even)));
#endif
}

struct PhiloxOutput {
  VU word[4];
};

// The last round, with the words of even and odd counters in one register.
HWY_INLINE PhiloxOutput LastRound(const PhiloxState& even, const PhiloxState& odd,
                                  const PhiloxKeys& keys) {
  const VW even0 = Mul32(even.w0, kPhiloxMul0), odd0 = Mul32(odd.w0, kPhiloxMul0);
  const VW even1 = Mul32(even.w2, kPhiloxMul1), odd1 = Mul32(odd.w2, kPhiloxMul1);
  return {{hn::Xor3(HighWords(even1, odd1), LowWords(even.w1, odd.w1), keys.last0),
           LowWords(even1, odd1),
           hn::Xor3(HighWords(even0, odd0), LowWords(even.w3, odd.w3), keys.last1),
           LowWords(even0, odd0)}};
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
HWY_INLINE void FillGroup(uint64_t group, PhiloxKeys& keys, float* out) {
  const DW d;
  const uint64_t counter = group * kNoiseCounters;
  const uint32_t high = static_cast<uint32_t>(counter >> 32);
  if (HWY_UNLIKELY(high != keys.counter_high)) keys.SetCounterHigh(high);
  const VW even = hn::Add(hn::Iota(d, 0), hn::Iota(d, 0));
  for (int64_t lane = 0; lane < kNoiseCounters; lane += kLanes) {
    const uint64_t first = counter + static_cast<uint64_t>(lane);
    const PhiloxOutput x = LastRound(PhiloxWords(hn::Add(even, hn::Set(d, first)), keys),
                                     PhiloxWords(hn::Add(even, hn::Set(d, first + 1)), keys), keys);
    for (int w = 0; w < 4; ++w)
      StoreUniforms(x.word[w], out + lane + 32 * w, out + lane + 32 * w + 16);
  }
}

// Numbers of `elems` elements from `first`; returns where in `buffer` (elems + 2 groups long) they
// begin.
HWY_INLINE const float* FillNoise(uint64_t first, int64_t elems, PhiloxKeys& keys, float* buffer) {
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
