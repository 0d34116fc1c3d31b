#include "cli/lm/kernels.h"

#include "cli/lm/kernels_targets.h"

namespace zpp::lm {
namespace {

struct Target {
  std::string_view name;
  const Kernels<float>* kernels;
};

std::vector<Target> Targets() {
  std::vector<Target> targets;
#if defined(ZPP_LM_X86)
  __builtin_cpu_init();
  const bool fits = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  if (fits) targets.push_back({"avx2", &avx2::kFloat});
#endif
  targets.push_back({"base", &base::kFloat});
  return targets;
}

}  // namespace

std::vector<std::string_view> KernelTargets() {
  std::vector<std::string_view> names;
  for (const Target& target : Targets()) names.push_back(target.name);
  return names;
}

const Kernels<float>* KernelsOf(std::string_view target) {
  for (const Target& one : Targets()) {
    if (one.name == target) return one.kernels;
  }
  return nullptr;
}

const Kernels<float>& FastKernels() {
  static const Kernels<float>* const best = Targets().front().kernels;
  return *best;
}

const Kernels<double>& DoubleKernels() { return base::kDouble; }

}  // namespace zpp::lm
