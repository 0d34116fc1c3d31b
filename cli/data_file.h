// Values for a measurement from a file of the user: raw, or .safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/file.h"
#include "common/safetensors.h"
#include "common/status.h"

namespace zpp::cli {

// An open file; its values are read when they are asked for, so a file may be larger than memory.
// Move only. Thread-safe once open.
class DataFile {
 public:
  // A name that ends in .safetensors is read as such: its fp32, fp16 and bf16 tensors follow each
  // other in the order of their bytes, all others are left out. Any other file is raw values of
  // `raw_dtype`. kNotFound: cannot be opened. kDataLoss: truncated, or it lies about itself.
  // kInvalidArgument: no values in it, or `raw_dtype` is kByte. Each message names the file.
  static Result<DataFile> Open(const std::string& path, DType raw_dtype);

  int64_t elems() const { return elems_; }  // above 0
  // Of a .safetensors file; empty for a raw one.
  const std::vector<StoredTensor>& taken() const { return taken_; }
  const std::vector<StoredTensor>& left_out() const { return left_out_; }
  // What was taken and what was left out, a line each, for people.
  std::vector<std::string> Notes() const;

  // Elements first, first+1, ... as `dtype`; after the last one comes the first one again. Values
  // of the same type keep their bits, others go by way of fp32 (float_bits.h). `out` is a whole
  // number of elements. kDataLoss when the file has shrunk or cannot be read.
  Status Fill(int64_t first_elem, DType dtype, std::span<std::byte> out) const;

 private:
  // Elements of one type that lie together in the file.
  struct Run {
    int64_t first_elem = 0;
    int64_t elems = 0;
    int64_t offset_bytes = 0;
    DType dtype = DType::kF32;
  };

  DataFile() = default;
  Status OpenRaw(const std::string& path, DType dtype);
  Status OpenSafetensors(const std::string& path);
  void Append(int64_t elems, int64_t offset_bytes, DType dtype);
  Status FillFromRun(const Run& run, int64_t skip_elems, DType dtype,
                     std::span<std::byte> out) const;

  InputFile file_;
  int64_t elems_ = 0;
  std::vector<Run> runs_;
  std::vector<StoredTensor> taken_, left_out_;
};

}  // namespace zpp::cli
