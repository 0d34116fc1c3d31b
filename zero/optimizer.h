// Adam, AdamW and SGD over contiguous ranges of a shard.
//
// Every step is element-wise in fp32, one IEEE operation after the other and never fused: the same
// bits on every SIMD target, whatever ranges a shard is cut into. A NaN or infinite gradient spoils
// its own element only. All functions run on the calling thread and allocate nothing.
//
// Memory is all they cost: Adam updates three arrays and reads one; the arithmetic hides behind it.
#pragma once

#include <cstdint>
#include <span>

#include "common/status.h"
#include "quant/codec.h"

namespace zpp {

// PyTorch's torch.optim.Adam (decoupled = false) and AdamW (decoupled = true) without amsgrad, for
// step t = 1, 2, ...:
//
//   g = grad * grad_scale
//   decoupled: p *= 1 - lr * weight_decay      otherwise: g += weight_decay * p
//   m += (1 - beta1) * (g - m)
//   v = beta2 * v + (1 - beta2) * g * g
//   p -= lr / c1 * m / (sqrt(v) / c2 + eps)    c1 = 1 - beta1^t, c2 = sqrt(1 - beta2^t)
//
// Without bias_correction c1 = c2 = 1. Scalars are computed in double and rounded to fp32 once.
// With eps = 0 an element that never had a gradient becomes NaN, there as here.
struct AdamConfig {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = true;
  bool bias_correction = true;
  bool operator==(const AdamConfig&) const = default;
};

// PyTorch's torch.optim.SGD:
//
//   g = grad * grad_scale + weight_decay * p
//   momentum != 0: b = g at step 1, later b = momentum * b + (1 - dampening) * g
//                  g = nesterov ? g + momentum * b : b
//   p -= lr * g
struct SgdConfig {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool operator==(const SgdConfig&) const = default;
};

// kInvalidArgument with a sentence that names the value; for configuration files.
Status Validate(const AdamConfig& config);
Status Validate(const SgdConfig& config);

// `grad`, m and v have master's length, in elements. `weights_out`: empty, or as long as master; it
// receives the new master rounded to its type (to nearest even), at any alignment. No two of them
// overlap. `stores`: see StoreHint; kAuto streams weights of kStreamFrom_bytes and more, kStream is
// for a range that is a piece of so many.
struct AdamRange {
  std::span<float> master;
  std::span<float> m;  // running mean of the gradient, 0 before step 1
  std::span<float> v;  // running mean of its square, 0 before step 1
  std::span<const float> grad;
  Vec weights_out;
  StoreHint stores = StoreHint::kAuto;
};

struct SgdRange {
  std::span<float> master;
  std::span<float> momentum;  // empty when config.momentum is 0; not read at step 1
  std::span<const float> grad;
  Vec weights_out;
  StoreHint stores = StoreHint::kAuto;
};

// One optimizer step of a range. `step` counts from 1 and leaves out skipped steps. `grad_scale` is
// whatever the gradient must be multiplied by, all in one: 1 / loss scale, clip coefficient,
// 1 / accumulated micro-batches. kInvalidArgument before anything is written: lengths that differ,
// a step below 1, a configuration that Validate() refuses.
Status AdamStep(const AdamConfig& config, int64_t step, float grad_scale, const AdamRange& range);
Status SgdStep(const SgdConfig& config, int64_t step, float grad_scale, const SgdRange& range);

}  // namespace zpp
