// The optimizers element by element. Every line is one rounded operation; simd/update-inl.h has the
// same ones in the same order.
#include <bit>
#include <cmath>

#include "zero/internal/optimizer_kernels.h"

namespace zpp {
namespace {

void AdamScalar(const AdamScalars& s, const AdamPointers& range, int64_t elems) {
  for (int64_t i = 0; i < elems; ++i) {
    float p = range.master[i];
    float g = range.grad[i] * s.grad_scale;
    if (s.l2 != 0) g += s.l2 * p;
    p *= s.decay;
    const float m = range.m[i] + s.mean_rate * (g - range.m[i]);
    const float v = s.square_keep * range.v[i] + s.square_rate * g * g;
    const float denominator = std::sqrt(v) * s.inverse_c2 + s.eps;
    range.m[i] = m;
    range.v[i] = v;
    range.master[i] = p - s.step_size * m / denominator;
  }
}

void SgdScalar(const SgdScalars& s, const SgdPointers& range, int64_t elems) {
  for (int64_t i = 0; i < elems; ++i) {
    const float p = range.master[i];
    float g = range.grad[i] * s.grad_scale;
    if (s.l2 != 0) g += s.l2 * p;
    if (s.has_momentum) {
      const float b = s.first ? g : s.momentum * range.momentum[i] + s.gradient_share * g;
      range.momentum[i] = b;
      g = s.nesterov ? g + s.momentum * b : b;
    }
    range.master[i] = p - s.lr * g;
  }
}

void SquaresScalar(const float* values, SquareGroup& group) {
  for (size_t i = 0; i < SquareGroup::kElems; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
    group.exponents[i] = (bits >> 23) & 0xff;
    const uint64_t mantissa = (bits & 0x7fffff) | (group.exponents[i] != 0 ? 0x800000u : 0u);
    group.squares[i] = mantissa * mantissa;
  }
}

}  // namespace

const OptimizerKernels& ScalarOptimizerKernels() {
  static const OptimizerKernels kernels = {
      .name = "scalar", .adam = AdamScalar, .sgd = SgdScalar, .squares = SquaresScalar};
  return kernels;
}

}  // namespace zpp
