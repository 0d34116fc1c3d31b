// The SIMD codec, compiled once per target. Each target is a table of functions; codec_targets.cc
// chooses one.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "quant/codec_kernels.h"
#include "quant/codec_math.h"

// Highway's oldest x86 target and its scalable vectors are left out: the former is no CPU of
// interest, the latter have no size at compile time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/codec_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// Highway first: its targets are what the files below are compiled for.
#if HWY_TARGET != HWY_SCALAR
#include "quant/simd/decode-inl.h"
#include "quant/simd/encode-inl.h"
#include "quant/simd/sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zpp::HWY_NAMESPACE {

const CodecKernels& GetKernels() {
  static const CodecKernels kernels = {.name = hwy::TargetName(HWY_TARGET),
                                       .encode = EncodeVector,
                                       .decode = DecodeVector,
                                       .accumulate = AccumulateVector,
                                       .sum = SumVectors,
                                       .convert = ConvertVector,
                                       .stream = StreamCopy};
  return kernels;
}

}  // namespace zpp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR

#if HWY_ONCE
namespace zpp {
namespace {

struct TargetList {
  std::array<const CodecKernels*, 8> kernels{};
  size_t count = 0;

  void AddIfSupported(int64_t target, const CodecKernels& (*get)()) {
    if ((hwy::SupportedTargets() & target) != 0) kernels[count++] = &get();
  }
};

TargetList FindTargets() {
  TargetList list;
#if HWY_TARGETS & HWY_AVX3_DL
  list.AddIfSupported(HWY_AVX3_DL, N_AVX3_DL::GetKernels);
#endif
#if HWY_TARGETS & HWY_AVX3
  list.AddIfSupported(HWY_AVX3, N_AVX3::GetKernels);
#endif
#if HWY_TARGETS & HWY_AVX2
  list.AddIfSupported(HWY_AVX2, N_AVX2::GetKernels);
#endif
#if HWY_TARGETS & HWY_SSE4
  list.AddIfSupported(HWY_SSE4, N_SSE4::GetKernels);
#endif
#if HWY_TARGETS & HWY_NEON
  list.AddIfSupported(HWY_NEON, N_NEON::GetKernels);
#endif
  return list;
}

}  // namespace

std::span<const CodecKernels* const> SimdKernels() {
  static const TargetList list = FindTargets();
  return {list.kernels.data(), list.count};
}

}  // namespace zpp
#endif  // HWY_ONCE
