// The element types of user buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/status.h"

namespace zpp {

// kByte stands for any other type: moved verbatim, never reduced, never compressed.
enum class DType : uint8_t { kF32 = 0, kF16 = 1, kBF16 = 2, kByte = 3 };

constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kByte:
      return 1;
  }
  return 1;
}

constexpr bool IsFloat(DType dtype) { return dtype != DType::kByte; }

// "fp32", "fp16", "bf16", "byte".
std::string_view DTypeName(DType dtype);
// The names above, and "float", "half", "bfloat16", "uint8" as others call them.
Result<DType> ParseDType(std::string_view name);

}  // namespace zpp
