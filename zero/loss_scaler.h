// The factor that the loss is multiplied by so that fp16 gradients do not vanish. A value: cheap to
// copy, equal on all ranks as long as all see the same overflows.
#pragma once

#include <cstdint>

#include "common/status.h"

namespace zpp {

// The keys of DeepSpeed's "fp16" section, with its defaults.
struct LossScalerConfig {
  double loss_scale = 0;  // > 0: that factor for ever. 0: dynamic, which the rest is about
  int initial_scale_power = 16;
  int64_t loss_scale_window = 1000;
  int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
};

// kInvalidArgument with a sentence that names the key.
Status Validate(const LossScalerConfig& config);

// All that changes; for checkpoints.
struct LossScalerState {
  double scale = 1;
  int64_t steps = 0;                // calls of Update()
  int64_t last_overflow_step = -1;  // counted like `steps` from 0; -1: none yet
  int64_t hysteresis_left = 1;
  bool operator==(const LossScalerState&) const = default;
};

// DeepSpeed's DynamicLossScaler, step by step:
// - an overflow costs one unit of hysteresis; when one unit is left, it halves the scale instead,
//   down to min_loss_scale;
// - once `window` good steps lie behind the last overflow (or the start), the next good step
//   doubles the scale and refills the hysteresis, and so does every window-th one after it;
// - with consecutive_hysteresis every good step refills the hysteresis.
// The scale stops growing at 2^126, so that it and its reciprocal are normal fp32 numbers.
class LossScaler {
 public:
  static constexpr double kMaxScale = 0x1p126;

  // No scaling: a static factor of 1, for fp32 and bf16.
  LossScaler() = default;
  static Result<LossScaler> Create(const LossScalerConfig& config);

  // What the loss of the next step is multiplied by.
  double scale() const { return state_.scale; }
  bool dynamic() const { return dynamic_; }

  // After each step, on all ranks with the same `overflow` (did any rank's gradient hold a NaN or
  // an infinity? Then the step must have been skipped). kInvalidArgument when a dynamic scale
  // should shrink and is at min_loss_scale already: training has diverged. The state is then
  // unchanged. A static scale ignores overflows.
  Status Update(bool overflow);

  const LossScalerState& state() const { return state_; }
  // Continues from a checkpoint. A static scale keeps its own factor. kInvalidArgument for a state
  // that this configuration cannot reach.
  Status Restore(const LossScalerState& state);

 private:
  Status Shrink();
  void Grow();

  LossScalerConfig config_{.loss_scale = 1};
  LossScalerState state_;
  bool dynamic_ = false;
};

}  // namespace zpp
