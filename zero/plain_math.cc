#include <cstring>

#include "zero/internal/plain_math.h"

namespace zpp::internal {
namespace {

Operand PlainOperand(const ConstVec& v) {
  return {.spec = QuantSpec::None(v.dtype),
          .payload = {static_cast<const std::byte*>(v.data),
                      static_cast<size_t>(v.elems * SizeOf(v.dtype))}};
}

std::span<std::byte> BytesOf(const Vec& v) {
  return {static_cast<std::byte*>(v.data), static_cast<size_t>(v.elems * SizeOf(v.dtype))};
}

}  // namespace

ConstVec Slice(const ConstVec& v, int64_t first, int64_t elems) {
  return {v.dtype, static_cast<const std::byte*>(v.data) + first * SizeOf(v.dtype), elems};
}
Vec Slice(const Vec& v, int64_t first, int64_t elems) {
  return {v.dtype, static_cast<std::byte*>(v.data) + first * SizeOf(v.dtype), elems};
}

Status Convert(const ConstVec& in, const Vec& out) {
  if (in.elems == 0) return {};
  if (in.dtype == out.dtype) {
    std::memmove(out.data, in.data, BytesOf(out).size());
    return {};
  }
  const Operand operand = PlainOperand(in);
  return ReduceRecode(
      {.in = {&operand, 1}, .elems = in.elems, .out_spec = QuantSpec::None(out.dtype), .noise = {}},
      BytesOf(out));
}

Status AddTo(const Vec& acc, const ConstVec& in) {
  if (in.elems == 0) return {};
  const Operand operands[] = {PlainOperand(AsConst(acc)), PlainOperand(in)};
  return ReduceRecode(
      {.in = operands, .elems = in.elems, .out_spec = QuantSpec::None(acc.dtype), .noise = {}},
      BytesOf(acc));
}

Status Subtract(std::span<const float> a, const ConstVec& b, std::span<float> out) {
  ZPP_RETURN_IF_ERROR(Convert(b, VecOf(out)));
  for (size_t i = 0; i < out.size(); ++i) out[i] = a[i] - out[i];
  return {};
}

Result<Buffer> AllocateFloats(int64_t elems) {
  return Buffer::Allocate(static_cast<size_t>(elems) * sizeof(float));
}

}  // namespace zpp::internal
