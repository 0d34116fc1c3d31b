#include "cli/yardsticks.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace zpp {
namespace {

// Plain loops with enough independent sums; the best instructions that the running CPU has are
// chosen when it starts.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ZPP_MULTIVERSION __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ZPP_MULTIVERSION
#endif

ZPP_MULTIVERSION uint32_t SumWords(const uint32_t* words, size_t count) {
  constexpr size_t kSums = 64;
  uint32_t sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (size_t j = 0; j < kSums; ++j) sums[j] += words[i + j];
  }
  uint32_t total = 0;
  for (; i < count; ++i) total += words[i];
  for (uint32_t sum : sums) total += sum;
  return total;
}

ZPP_MULTIVERSION void AddOnes(float* data, size_t count) {
  for (size_t i = 0; i < count; ++i) data[i] += 1.0f;
}

}  // namespace

uint32_t ReadAll(std::span<const std::byte> data) {
  return SumWords(reinterpret_cast<const uint32_t*>(data.data()), data.size() / 4);
}

void UpdateAll(std::span<float> data) { AddOnes(data.data(), data.size()); }

void FillAll(std::span<std::byte> data, bool stream) {
#if defined(__SSE2__)
  if (stream && reinterpret_cast<uintptr_t>(data.data()) % 16 == 0) {
    const __m128i value = _mm_set1_epi8(1);
    size_t i = 0;
    for (; i + 64 <= data.size(); i += 64) {
      auto* p = reinterpret_cast<__m128i*>(data.data() + i);
      for (int j = 0; j < 4; ++j) _mm_stream_si128(p + j, value);
    }
    std::memset(data.data() + i, 1, data.size() - i);
    _mm_sfence();
    return;
  }
#endif
  std::memset(data.data(), 1, data.size());
}

}  // namespace zpp
