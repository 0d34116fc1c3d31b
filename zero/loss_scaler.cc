#include "zero/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace zpp {
namespace {

constexpr double kFactor = 2;

Status CheckPositive(const char* name, double value) {
  if (value > 0 && value <= LossScaler::kMaxScale) return {};
  return InvalidArgument(std::string(name) + " is " + std::to_string(value) +
                         "; it must be positive and at most 2^126");
}

Status CheckAtLeastOne(const char* name, int64_t value) {
  if (value >= 1) return {};
  return InvalidArgument(std::string(name) + " is " + std::to_string(value) +
                         "; it must be at least 1");
}

}  // namespace

Status Validate(const LossScalerConfig& config) {
  if (config.loss_scale != 0) return CheckPositive("loss_scale", config.loss_scale);
  if (config.initial_scale_power < 0 || config.initial_scale_power > 126) {
    return InvalidArgument("initial_scale_power is " + std::to_string(config.initial_scale_power) +
                           "; it must lie in 0..126");
  }
  ZPP_RETURN_IF_ERROR(CheckAtLeastOne("loss_scale_window", config.loss_scale_window));
  ZPP_RETURN_IF_ERROR(CheckAtLeastOne("hysteresis", config.hysteresis));
  return CheckPositive("min_loss_scale", config.min_loss_scale);
}

Result<LossScaler> LossScaler::Create(const LossScalerConfig& config) {
  ZPP_RETURN_IF_ERROR(Validate(config));
  LossScaler scaler;
  scaler.config_ = config;
  scaler.dynamic_ = config.loss_scale == 0;
  scaler.state_.scale =
      scaler.dynamic_ ? std::ldexp(1.0, config.initial_scale_power) : config.loss_scale;
  scaler.state_.hysteresis_left = scaler.dynamic_ ? config.hysteresis : 1;
  return scaler;
}

Status LossScaler::Update(bool overflow) {
  if (dynamic_ && overflow) {
    ZPP_RETURN_IF_ERROR(Shrink());
    state_.last_overflow_step = state_.steps;
  } else if (dynamic_) {
    Grow();
  }
  ++state_.steps;
  return {};
}

Status LossScaler::Shrink() {
  if (config_.hysteresis > 1 && state_.hysteresis_left > 1) {
    --state_.hysteresis_left;
    return {};
  }
  if (state_.scale == config_.min_loss_scale) {
    return InvalidArgument(
        "the loss scale is at min_loss_scale = " + std::to_string(config_.min_loss_scale) +
        " and gradients still overflow: training has diverged");
  }
  // A first scale below the minimum is lifted to it, as DeepSpeed does.
  state_.scale = std::max(state_.scale / kFactor, config_.min_loss_scale);
  return {};
}

void LossScaler::Grow() {
  if (config_.consecutive_hysteresis) state_.hysteresis_left = config_.hysteresis;
  const int64_t good_before = state_.steps - state_.last_overflow_step - 1;
  if (good_before == 0 || good_before % config_.loss_scale_window != 0) return;
  state_.hysteresis_left = config_.hysteresis;
  state_.scale = std::min(state_.scale * kFactor, kMaxScale);
}

Status LossScaler::Restore(const LossScalerState& state) {
  const bool counts = state.steps >= 0 && state.last_overflow_step >= -1 &&
                      state.last_overflow_step < std::max<int64_t>(state.steps, 0);
  const bool values = state.scale > 0 && state.scale <= kMaxScale && state.hysteresis_left >= 1;
  if (!counts || !values) {
    return InvalidArgument(
        "a loss scaler cannot have scale " + std::to_string(state.scale) + ", hysteresis " +
        std::to_string(state.hysteresis_left) + " and its last overflow at step " +
        std::to_string(state.last_overflow_step) + " of " + std::to_string(state.steps));
  }
  const double own_scale = state_.scale;
  state_ = state;
  if (!dynamic_) state_.scale = own_scale;
  return {};
}

}  // namespace zpp
