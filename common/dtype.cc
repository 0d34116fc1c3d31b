#include "common/dtype.h"

#include <string>

namespace zpp {

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kF16:
      return "fp16";
    case DType::kBF16:
      return "bf16";
    case DType::kByte:
      return "byte";
  }
  return "?";
}

Result<DType> ParseDType(std::string_view name) {
  if (name == "fp32" || name == "float" || name == "float32") return DType::kF32;
  if (name == "fp16" || name == "half" || name == "float16") return DType::kF16;
  if (name == "bf16" || name == "bfloat16") return DType::kBF16;
  if (name == "byte" || name == "uint8") return DType::kByte;
  return InvalidArgument("unknown data type '" + std::string(name) + "' (fp32, fp16, bf16, byte)");
}

}  // namespace zpp
