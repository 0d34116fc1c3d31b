// Reading .safetensors files: 8 bytes of length (little-endian), that much JSON, then the tensors'
// bytes. https://github.com/huggingface/safetensors#format, with its reference reader's strictness.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/dtype.h"
#include "common/file.h"
#include "common/status.h"

namespace zpp {

inline constexpr int64_t kSafetensorsLengthBytes = 8;
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

struct StoredTensor {
  std::string name;
  std::string type;            // as the file says it: "F32", "I64", ...
  std::optional<DType> dtype;  // absent: none that zpp computes with
  std::vector<int64_t> shape;
  int64_t elems = 0;
  int64_t offset_bytes = 0;  // from the start of the file
  int64_t size_bytes = 0;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in the order of their bytes
  SafetensorsMetadata metadata;
};

// Length of the JSON, from the first bytes of a file (all of them when it has fewer than 8).
// kDataLoss when the file is too short for it.
Result<int64_t> SafetensorsHeaderBytes(std::span<const std::byte> start, int64_t file_bytes);

// kDataLoss with one sentence when a tensor's type is unknown, its shape does not match its bytes
// or overflows, or when the tensors overlap, leave holes or do not end where the file ends.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t file_bytes);

// Bits of one element of a type as the format names it, 0 for an unknown one.
int64_t SafetensorsTypeBits(std::string_view type);

// An open file: the header is read and checked, values are read when they are asked for, so a file
// may be larger than memory. Move only. Thread-safe. Each message names the file.
class SafetensorsFile {
 public:
  // kNotFound: cannot be opened. kInvalidArgument: not a regular file. kDataLoss: truncated, or it
  // lies about itself.
  static Result<SafetensorsFile> Open(const std::string& path);

  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  // Null when there is none of that name. Looks through all of them.
  const StoredTensor* Find(std::string_view name) const;
  // Bytes of one of tensors(), from its byte `first_byte` on. kInvalidArgument when they are not
  // all its own, kDataLoss when the file has shrunk or cannot be read.
  Status Read(const StoredTensor& tensor, int64_t first_byte, std::span<std::byte> out) const;

  // The file itself, for reads across tensors.
  InputFile TakeFile() && { return std::move(file_); }

 private:
  InputFile file_;
  SafetensorsHeader header_;
};

}  // namespace zpp
