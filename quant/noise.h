// Counter-based random numbers for stochastic rounding: Philox4x32 with 7 rounds (Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011; 7 rounds are the fewest that pass
// BigCrush), 16 bits per element.
#pragma once

#include <cstdint>

#include "common/float_bits.h"

namespace zpp {

// Elements come in groups of 128, which 16 counters of 8 numbers each serve: element e of the
// vector uses counter 16 * (e / 128) + e % 16, and of its four 32-bit words the half number (e %
// 128) / 16, low halves first. So a SIMD register of any width holds whole runs of counters.
inline constexpr int64_t kNoiseGroup_elems = 128;
inline constexpr int kNoiseCounters = 16;
inline constexpr int kPhiloxRounds = 7;
inline constexpr uint32_t kPhiloxMul0 = 0xd2511f53u, kPhiloxMul1 = 0xcd9e8d57u;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9e3779b9u, kPhiloxWeyl1 = 0xbb67ae85u;

struct PhiloxBlock {
  uint32_t word[4];
};

// Counter words: counter (low, high), step (low, high). Key words: seed (low, high).
ZPP_HD PhiloxBlock Philox(uint64_t counter, uint64_t step, uint64_t seed) {
  PhiloxBlock x{{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                 static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)}};
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kPhiloxMul0) * x.word[0];
    const uint64_t product1 = static_cast<uint64_t>(kPhiloxMul1) * x.word[2];
    x = {{static_cast<uint32_t>(product1 >> 32) ^ x.word[1] ^ key0, static_cast<uint32_t>(product1),
          static_cast<uint32_t>(product0 >> 32) ^ x.word[3] ^ key1,
          static_cast<uint32_t>(product0)}};
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return x;
}

// The 16 random bits of one element.
ZPP_HD uint16_t NoiseOf(uint64_t seed, uint64_t step, uint64_t elem) {
  const PhiloxBlock block = Philox(elem / 128 * 16 + elem % 16, step, seed);
  const uint32_t half = static_cast<uint32_t>(elem % 128 / 16);
  return static_cast<uint16_t>(block.word[half / 2] >> (half % 2 * 16));
}

}  // namespace zpp
