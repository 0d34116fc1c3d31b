#include "quant/codec_kernels.h"

namespace zpp {

std::span<const CodecKernels* const> SimdKernels() { return {}; }

}  // namespace zpp
