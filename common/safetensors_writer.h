// Writing .safetensors files from memory that stays where it is, in pieces of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/file.h"
#include "common/safetensors.h"
#include "common/status.h"

namespace zpp {

struct TensorToStore {
  std::string name;  // not "__metadata__"; each once
  std::string type;  // as the format names it: "F32", "F16", "BF16", "F64", "U8", "I64", ...
  std::vector<int64_t> shape;  // {} is one element
};

// A file that appears whole in Commit() or not at all. Larger element types lie before smaller
// ones, so that every tensor is aligned in a mapped file; names, metadata and the header's padding
// are as the format asks. Move only. Copies no tensor bytes.
class SafetensorsWriter {
 public:
  // Writes the header. kInvalidArgument: a name twice or not UTF-8, an unknown type, a size that is
  // negative or overflows. Else as AsideFile::Create and WriteAt.
  static Result<SafetensorsWriter> Create(const std::string& path,
                                          std::span<const TensorToStore> tensors,
                                          const SafetensorsMetadata& metadata);

  // The next bytes of tensors[index]. Tensors may be written in any order and in turns, and
  // different ones by different threads at once. kInvalidArgument when they are more than its shape
  // has, kResourceExhausted when the disk is full: the file that was there before is still whole.
  Status Append(size_t index, std::span<const std::byte> bytes);

  // kInvalidArgument when a tensor lacks bytes. Only once; ok means that the file is on the disk.
  Status Commit();

 private:
  struct Cursor {
    std::string name;
    int64_t next_byte = 0, end_byte = 0;  // from the start of the file
  };

  AsideFile file_;
  std::vector<Cursor> cursors_;  // as the tensors were given
};

struct TensorBytes {
  TensorToStore tensor;
  std::vector<std::span<const std::byte>> pieces;  // one after another they are all its bytes
};

// All of it in one call; errors as above.
Status WriteSafetensors(const std::string& path, std::span<const TensorBytes> tensors,
                        const SafetensorsMetadata& metadata = {});

}  // namespace zpp
