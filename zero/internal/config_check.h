// What the values of a configuration must hold together.
#pragma once

#include <cstdint>

#include "topology/topology.h"
#include "zero/config.h"
#include "zero/internal/config_section.h"

namespace zpp {

// The three batch keys as they are written; 0: not there.
struct BatchKeys {
  // Numbers above are mistakes; the product with the ranks stays below 2^63.
  static constexpr int64_t kMaxMicro = 100'000'000;
  static constexpr int64_t kMaxAccumulation = 1'000'000;
  static constexpr int64_t kMaxTrain = kMaxMicro * kMaxAccumulation * Topology::kMaxWorld;

  int64_t train = 0;
  int64_t micro = 0;
  int64_t accumulation = 0;
};

// Derives what is not there and holds the product, as DeepSpeed does. What is derived has the
// limits of what is written.
void SetBatch(ConfigSection& top, const BatchKeys& batch, int world, ZeroConfig& config);

void CheckLossScale(ConfigSection& fp16, const LossScaleConfig& config);
void CheckZero(ConfigSection& zero, const ZeroConfig& config, int world);
void CheckZeroPp(ConfigSection& zero_pp, const ZeroConfig& config);

}  // namespace zpp
