// Internal: what a SIMD target provides. optimizer.cc checks the arguments and cuts ranges into
// tiles. Pointers lie at any multiple of 4; element counts may be anything from 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace zpp {

// An AdamConfig at one step, in the numbers that an element needs.
struct AdamScalars {
  float grad_scale = 1;
  float l2 = 0;     // added to the gradient, times p; 0 when decoupled
  float decay = 1;  // of p; 1 when not decoupled
  float mean_rate = 0;
  float square_keep = 0;
  float square_rate = 0;
  float inverse_c2 = 1;
  float eps = 0;
  float step_size = 0;
};

struct AdamPointers {
  float* master;
  float* m;
  float* v;
  const float* grad;
};

struct SgdScalars {
  float grad_scale = 1;
  float l2 = 0;
  bool has_momentum = false;
  bool first = false;  // the momentum is the gradient
  float momentum = 0;
  float gradient_share = 1;  // 1 - dampening
  bool nesterov = false;
  float lr = 0;
};

struct SgdPointers {
  float* master;
  float* momentum;  // nullptr without
  const float* grad;
};

// The squares of some floats: the float with exponent bits e and the mantissa m, the leading one
// included, becomes m^2 and e. Pairs come in any order.
struct SquareGroup {
  static constexpr size_t kElems = 128;
  uint64_t squares[kElems];
  uint64_t exponents[kElems];
};

struct OptimizerKernels {
  std::string_view name;
  void (*adam)(const AdamScalars& scalars, const AdamPointers& range, int64_t elems);
  void (*sgd)(const SgdScalars& scalars, const SgdPointers& range, int64_t elems);
  // Of SquareGroup::kElems values.
  void (*squares)(const float* values, SquareGroup& group);
};

// ZPP_TARGET's, or the best.
const OptimizerKernels& DefaultOptimizerKernels();
// Plain C++: the reference that the others are compared with.
const OptimizerKernels& ScalarOptimizerKernels();
// Compiled SIMD targets that this CPU has, best first.
std::span<const OptimizerKernels* const> SimdOptimizerKernels();

}  // namespace zpp
