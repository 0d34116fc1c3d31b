// The SIMD optimizers, compiled once per target.
#include <array>
#include <string>

#include "common/env.h"
#include "common/log.h"
#include "zero/internal/optimizer_kernels.h"

// Highway's oldest x86 target and its scalable vectors are left out: the former is no CPU of
// interest, the latter have no size at compile time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zero/optimizer_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// Highway first: its targets are what the files below are compiled for.
#if HWY_TARGET != HWY_SCALAR
#include "zero/simd/squares-inl.h"
#include "zero/simd/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zpp::optimizer::HWY_NAMESPACE {

const OptimizerKernels& Kernels() {
  static const OptimizerKernels kernels = {.name = hwy::TargetName(HWY_TARGET),
                                           .adam = AdamVector,
                                           .sgd = SgdVector,
                                           .squares = SquaresVector};
  return kernels;
}

}  // namespace zpp::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET != HWY_SCALAR

#if HWY_ONCE
namespace zpp {
namespace {

struct TargetList {
  std::array<const OptimizerKernels*, 8> kernels{};
  size_t count = 0;

  void AddIfSupported(int64_t target, const OptimizerKernels& (*get)()) {
    if ((hwy::SupportedTargets() & target) != 0) kernels[count++] = &get();
  }
};

TargetList FindTargets() {
  TargetList list;
#if HWY_TARGETS & HWY_AVX3
  list.AddIfSupported(HWY_AVX3, optimizer::N_AVX3::Kernels);
#endif
#if HWY_TARGETS & HWY_AVX2
  list.AddIfSupported(HWY_AVX2, optimizer::N_AVX2::Kernels);
#endif
#if HWY_TARGETS & HWY_SSE4
  list.AddIfSupported(HWY_SSE4, optimizer::N_SSE4::Kernels);
#endif
#if HWY_TARGETS & HWY_NEON
  list.AddIfSupported(HWY_NEON, optimizer::N_NEON::Kernels);
#endif
  return list;
}

// ZPP_TARGET names a codec target; where the optimizer has none of that name the best one serves.
const OptimizerKernels& Choose() {
  const std::string wanted = GetEnv(EnvVar::kTarget);
  if (wanted == ScalarOptimizerKernels().name) return ScalarOptimizerKernels();
  for (const OptimizerKernels* kernels : SimdOptimizerKernels()) {
    if (kernels->name == wanted) return *kernels;
  }
  return SimdOptimizerKernels().empty() ? ScalarOptimizerKernels()
                                        : *SimdOptimizerKernels().front();
}

}  // namespace

std::span<const OptimizerKernels* const> SimdOptimizerKernels() {
  static const TargetList list = FindTargets();
  return {list.kernels.data(), list.count};
}

const OptimizerKernels& DefaultOptimizerKernels() {
  static const OptimizerKernels& kernels = Choose();
  return kernels;
}

}  // namespace zpp
#endif  // HWY_ONCE
