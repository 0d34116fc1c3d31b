// The header of a .safetensors file: 8 bytes of length (little-endian), that much JSON, then the
// tensors' bytes. https://github.com/huggingface/safetensors#format, with its reference reader's
// strictness.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/dtype.h"
#include "common/status.h"

namespace zpp::cli {

inline constexpr int64_t kSafetensorsLengthBytes = 8;
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

struct TensorInfo {
  std::string name;
  std::string type;            // as the file says it: "F32", "I64", ...
  std::optional<DType> dtype;  // absent: a type that is left out
  std::vector<int64_t> shape;
  int64_t elems = 0;
  int64_t offset_bytes = 0;  // from the start of the file
};

// Length of the JSON, from the first bytes of a file (all of them when it has fewer than 8).
// kDataLoss when the file is too short for it.
Result<int64_t> SafetensorsHeaderBytes(std::span<const std::byte> start, int64_t file_bytes);

// All tensors in the order of their bytes. kDataLoss with one sentence when a tensor's type is
// unknown, its shape does not match its bytes or overflows, or when the tensors overlap, leave
// holes or do not end where the file ends.
Result<std::vector<TensorInfo>> ParseSafetensorsHeader(std::string_view json, int64_t file_bytes);

}  // namespace zpp::cli
