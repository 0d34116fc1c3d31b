// What the values of a configuration must hold together.
#pragma once

#include <cstdint>

#include "zero/config.h"
#include "zero/internal/config_section.h"

namespace zpp {

// The three batch keys as they are written; 0: not there.
struct BatchKeys {
  int64_t train = 0;
  int64_t micro = 0;
  int64_t accumulation = 0;
};

// Derives what is not there and holds the product, as DeepSpeed does.
void SetBatch(ConfigSection& top, const BatchKeys& batch, int world, ZeroConfig& config);

void CheckLossScale(ConfigSection& fp16, const LossScaleConfig& config);
void CheckZero(ConfigSection& zero, const ZeroConfig& config, int world);
void CheckZeroPp(ConfigSection& zero_pp, const ZeroConfig& config);

}  // namespace zpp
