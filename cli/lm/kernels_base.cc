#define ZPP_LM_TARGET base
#include "cli/lm/kernels-inl.h"
#include "cli/lm/kernels_targets.h"

namespace zpp::lm::base {

const Kernels<float> kFloat = MakeKernels<float>();
const Kernels<double> kDouble = MakeKernels<double>();
}  // namespace zpp::lm::base
