// Which compiled target runs.
#include "common/env.h"
#include "common/log.h"
#include "quant/codec_kernels.h"

namespace zpp {

const CodecKernels* FindKernels(std::string_view name) {
  if (name == ScalarKernels().name) return &ScalarKernels();
  for (const CodecKernels* kernels : SimdKernels()) {
    if (kernels->name == name) return kernels;
  }
  return nullptr;
}

const CodecKernels* DefaultKernels() {
  const std::string wanted = GetEnv(EnvVar::kTarget);
  if (!wanted.empty()) {
    const CodecKernels* kernels = FindKernels(wanted);
    if (kernels != nullptr) return kernels;
    Log(LogLevel::kWarning,
        "ZPP_TARGET='" + wanted + "' is not a codec target here; using the best");
  }
  return SimdKernels().empty() ? &ScalarKernels() : SimdKernels().front();
}

}  // namespace zpp
