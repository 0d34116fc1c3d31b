// The numbers that `zpp bw` sends: known to every rank, so that any result can be recomputed
// anywhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/dtype.h"
#include "quant/codec.h"

namespace zpp::cli {

// Element `index` of the vector that `rank` contributes, already rounded to the element type.
// Without a file: N(0,1)-like numbers from a hash of (rank, index), so a swapped rank or element
// shows. With one: the file's values, wrapped around and begun elsewhere for every rank.
class Values {
 public:
  explicit Values(DType dtype) : dtype_(dtype) {}
  Values(DType dtype, std::vector<float> file_values, int world);

  DType dtype() const { return dtype_; }
  bool from_file() const { return !file_.empty(); }
  // Elements [first, first + out.size()), exact in fp32.
  void Read(int rank, int64_t first, std::span<float> out) const;
  // The same in the element type; out.dtype must be dtype().
  void Fill(int rank, int64_t first, Vec out) const;

 private:
  float Raw(int rank, int64_t index) const;
  DType dtype_;
  std::vector<float> file_;
  int64_t rotation_elems_ = 0;
};

// One element of a vector of `dtype`, widened.
float ElementAt(ConstVec vec, int64_t index);

}  // namespace zpp::cli
