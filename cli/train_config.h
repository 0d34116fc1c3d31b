// Configurations that `zpp train` makes itself, and what follows from one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/lm/shape.h"
#include "common/status.h"
#include "topology/topology.h"
#include "zero/config.h"
#include "zero/memory_estimate.h"

namespace zpp::cli {

// Without --config: AdamW (0.9, 0.95), decay 0.01, clipping 1.0, fp32, zero_pp's defaults, and a
// batch of 512 or the next smaller one that can be divided.
struct DefaultChoices {
  double learning_rate = 3e-3;
  int stage = 3;
  int accumulation = 1;
  int64_t batch = 0;  // 0: 512 or less
  std::string compute = "fp32";
};
// In DeepSpeed's words, ready to be saved as a file.
std::string DefaultConfigText(const DefaultChoices& choices, int world);

// The same training, nothing compressed.
ZeroConfig Uncompressed(ZeroConfig config);
bool Compresses(const ZeroConfig& config);

// 3e-3, less in proportion for layers wider than 512.
double DefaultLearningRate(const lm::LmShape& shape);

double PeakLearningRate(const ZeroConfig& config);

// "gradients int8/256 inside, int4/128/sqrt across; ..." or "none".
std::string CompressionText(const ZeroConfig& config);

// What one rank will hold.
MemoryEstimate EstimateFor(const ZeroConfig& config, const lm::LmShape& shape,
                           const Topology& topology);

}  // namespace zpp::cli
