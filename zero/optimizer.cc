#include "zero/optimizer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>
#include <string>

#include "zero/internal/optimizer_kernels.h"

namespace zpp {
namespace {

// The new master is rounded into the weights while it lies in L1.
constexpr int64_t kTile_elems = 1024;
// Streamed stores need destinations aligned like this.
constexpr uintptr_t kStream_bytes = 64;

std::string Named(const char* name, double value) {
  std::ostringstream text;
  text << name << " is " << value;
  return text.str();
}

Status CheckAtLeastZero(const char* name, double value) {
  if (std::isfinite(value) && value >= 0) return {};
  return InvalidArgument(Named(name, value) + "; it must be finite and not negative");
}

Status CheckBelowOne(const char* name, double value) {
  if (value >= 0 && value < 1) return {};
  return InvalidArgument(Named(name, value) + "; it must lie in [0, 1)");
}

Status CheckLength(const char* name, int64_t elems, int64_t expected) {
  if (elems == expected) return {};
  return InvalidArgument(std::string(name) + " has " + std::to_string(elems) +
                         " elements and the master weights " + std::to_string(expected));
}

Status CheckCall(int64_t step, int64_t master, int64_t grad, const Vec& weights) {
  if (step < 1) {
    return InvalidArgument("optimizer step " + std::to_string(step) + "; steps count from 1");
  }
  ZPP_RETURN_IF_ERROR(CheckLength("the gradient", grad, master));
  if (weights.elems == 0) return {};
  if (!IsFloat(weights.dtype)) return InvalidArgument("weights_out must be fp32, fp16 or bf16");
  if (weights.data == nullptr) return InvalidArgument("weights_out has no data");
  return CheckLength("weights_out", weights.elems, master);
}

// By squaring: the same bits whatever the machine's pow().
double Power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent != 0; exponent >>= 1, base *= base) {
    if ((exponent & 1) != 0) result *= base;
  }
  return result;
}

AdamScalars ScalarsAt(const AdamConfig& c, int64_t step, float grad_scale) {
  const double c1 = c.bias_correction ? 1 - Power(c.beta1, step) : 1;
  const double c2 = c.bias_correction ? std::sqrt(1 - Power(c.beta2, step)) : 1;
  const double decay = c.decoupled ? 1 - c.lr * c.weight_decay : 1;
  return {.grad_scale = grad_scale,
          .l2 = c.decoupled ? 0.0f : static_cast<float>(c.weight_decay),
          .decay = static_cast<float>(decay),
          .mean_rate = static_cast<float>(1 - c.beta1),
          .square_keep = static_cast<float>(c.beta2),
          .square_rate = static_cast<float>(1 - c.beta2),
          .inverse_c2 = static_cast<float>(1 / c2),
          .eps = static_cast<float>(c.eps),
          .step_size = static_cast<float>(c.lr / c1)};
}

SgdScalars ScalarsAt(const SgdConfig& c, int64_t step, float grad_scale) {
  return {.grad_scale = grad_scale,
          .l2 = static_cast<float>(c.weight_decay),
          .has_momentum = c.momentum != 0,
          .first = step == 1,
          .momentum = static_cast<float>(c.momentum),
          .gradient_share = static_cast<float>(1 - c.dampening),
          .nesterov = c.nesterov,
          .lr = static_cast<float>(c.lr)};
}

// Where the first tile ends, so that the later ones start on a border for streamed stores.
int64_t FirstTile(const Vec& weights) {
  const uintptr_t ahead = -reinterpret_cast<uintptr_t>(weights.data) % kStream_bytes;
  const uintptr_t elem_bytes = static_cast<uintptr_t>(SizeOf(weights.dtype));
  if (weights.elems == 0 || ahead == 0 || ahead % elem_bytes != 0) return kTile_elems;
  return static_cast<int64_t>(ahead / elem_bytes);
}

// weights[at, at + elems) = the new master there.
Status StoreWeights(std::span<const float> master, int64_t at, const Vec& weights,
                    StoreHint stores) {
  if (weights.elems == 0) return {};
  const Operand operand{QuantSpec::None(DType::kF32), std::as_bytes(master)};
  const int64_t elem_bytes = SizeOf(weights.dtype);
  const std::span<std::byte> out(static_cast<std::byte*>(weights.data) + at * elem_bytes,
                                 master.size() * static_cast<size_t>(elem_bytes));
  return ReduceRecode({.in = {&operand, 1},
                       .elems = static_cast<int64_t>(master.size()),
                       .divisor = 1,
                       .out_spec = QuantSpec::None(weights.dtype),
                       .noise = {},
                       .stores = stores},
                      out);
}

StoreHint HintFor(const Vec& weights, StoreHint stores) {
  const bool large = weights.elems * SizeOf(weights.dtype) >= kStreamFrom_bytes;
  return large ? StoreHint::kStream : stores;
}

// Tile by tile: update(first element, elements), then the weights.
template <class Update>
Status ForEachTile(std::span<const float> master, const Vec& weights, StoreHint stores,
                   Update update) {
  const StoreHint hint = HintFor(weights, stores);
  const int64_t end = static_cast<int64_t>(master.size());
  int64_t elems = std::min(end, FirstTile(weights));
  for (int64_t at = 0; at < end; at += elems, elems = std::min(kTile_elems, end - at)) {
    update(at, elems);
    const auto tile = master.subspan(static_cast<size_t>(at), static_cast<size_t>(elems));
    ZPP_RETURN_IF_ERROR(StoreWeights(tile, at, weights, hint));
  }
  return {};
}

}  // namespace

Status Validate(const AdamConfig& config) {
  ZPP_RETURN_IF_ERROR(CheckAtLeastZero("lr", config.lr));
  ZPP_RETURN_IF_ERROR(CheckBelowOne("beta1", config.beta1));
  ZPP_RETURN_IF_ERROR(CheckBelowOne("beta2", config.beta2));
  ZPP_RETURN_IF_ERROR(CheckAtLeastZero("eps", config.eps));
  return CheckAtLeastZero("weight_decay", config.weight_decay);
}

Status Validate(const SgdConfig& config) {
  ZPP_RETURN_IF_ERROR(CheckAtLeastZero("lr", config.lr));
  ZPP_RETURN_IF_ERROR(CheckAtLeastZero("momentum", config.momentum));
  ZPP_RETURN_IF_ERROR(CheckAtLeastZero("weight_decay", config.weight_decay));
  if (!std::isfinite(config.dampening)) {
    return InvalidArgument(Named("dampening", config.dampening) + "; it must be finite");
  }
  if (config.nesterov && (config.momentum == 0 || config.dampening != 0)) {
    return InvalidArgument("nesterov needs a momentum and no dampening");
  }
  return {};
}

Status AdamStep(const AdamConfig& config, int64_t step, float grad_scale, const AdamRange& range) {
  const int64_t elems = std::ssize(range.master);
  ZPP_RETURN_IF_ERROR(Validate(config));
  ZPP_RETURN_IF_ERROR(CheckCall(step, elems, std::ssize(range.grad), range.weights_out));
  ZPP_RETURN_IF_ERROR(CheckLength("m", std::ssize(range.m), elems));
  ZPP_RETURN_IF_ERROR(CheckLength("v", std::ssize(range.v), elems));
  const AdamScalars scalars = ScalarsAt(config, step, grad_scale);
  const OptimizerKernels& kernels = DefaultOptimizerKernels();
  return ForEachTile(range.master, range.weights_out, range.stores, [&](int64_t at, int64_t count) {
    kernels.adam(scalars,
                 {.master = range.master.data() + at,
                  .m = range.m.data() + at,
                  .v = range.v.data() + at,
                  .grad = range.grad.data() + at},
                 count);
  });
}

Status SgdStep(const SgdConfig& config, int64_t step, float grad_scale, const SgdRange& range) {
  const int64_t elems = std::ssize(range.master);
  ZPP_RETURN_IF_ERROR(Validate(config));
  ZPP_RETURN_IF_ERROR(CheckCall(step, elems, std::ssize(range.grad), range.weights_out));
  const bool has_momentum = config.momentum != 0;
  ZPP_RETURN_IF_ERROR(
      CheckLength("momentum", std::ssize(range.momentum), has_momentum ? elems : 0));
  const SgdScalars scalars = ScalarsAt(config, step, grad_scale);
  const OptimizerKernels& kernels = DefaultOptimizerKernels();
  return ForEachTile(range.master, range.weights_out, range.stores, [&](int64_t at, int64_t count) {
    kernels.sgd(scalars,
                {.master = range.master.data() + at,
                 .momentum = has_momentum ? range.momentum.data() + at : nullptr,
                 .grad = range.grad.data() + at},
                count);
  });
}

}  // namespace zpp
