#define ZPP_LM_TARGET avx2
#include "cli/lm/kernels-inl.h"
#include "cli/lm/kernels_targets.h"

namespace zpp::lm::avx2 {

const Kernels<float> kFloat = MakeKernels<float>();

}  // namespace zpp::lm::avx2
