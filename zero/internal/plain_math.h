// Conversions and sums of plain vectors, by the codec's own kernels: correctly rounded, the same
// bits on every target.
#pragma once

#include <cstdint>
#include <span>

#include "common/buffer.h"
#include "common/status.h"
#include "quant/codec.h"

namespace zpp::internal {

inline ConstVec AsConst(const Vec& v) { return {v.dtype, v.data, v.elems}; }
inline ConstVec VecOf(std::span<const float> v) {
  return {DType::kF32, v.data(), static_cast<int64_t>(v.size())};
}
inline Vec VecOf(std::span<float> v) {
  return {DType::kF32, v.data(), static_cast<int64_t>(v.size())};
}
// Elements [first, first + elems).
ConstVec Slice(const ConstVec& v, int64_t first, int64_t elems);
Vec Slice(const Vec& v, int64_t first, int64_t elems);

// out = in, rounded to out's type. Equal lengths.
Status Convert(const ConstVec& in, const Vec& out);
// acc = acc + in, summed in fp32 and rounded to acc's type. Equal lengths.
Status AddTo(const Vec& acc, const ConstVec& in);
// out = a - b in fp32; b of any plain type. Equal lengths; out may not overlap a or b.
Status Subtract(std::span<const float> a, const ConstVec& b, std::span<float> out);

// Floats on the heap that were not initialised.
Result<Buffer> AllocateFloats(int64_t elems);
inline std::span<float> FloatsOf(const Buffer& buffer) {
  return {reinterpret_cast<float*>(buffer.data()), buffer.size() / sizeof(float)};
}

}  // namespace zpp::internal
