// What each kernels_*.cc holds.
#pragma once

#include "cli/lm/kernels.h"

namespace zpp::lm {

namespace base {
extern const Kernels<float> kFloat;
extern const Kernels<double> kDouble;
}  // namespace base
namespace avx2 {
extern const Kernels<float> kFloat;  // x86-64-v3
}  // namespace avx2

}  // namespace zpp::lm
