// Under which collective policy the gradients and weights of a slab travel. Pure functions of the
// config, so all ranks choose alike.
#pragma once

#include "collectives/policy.h"
#include "zero/config.h"
#include "zero/shard_map.h"

namespace zpp {

// The bits that gradients start with across nodes; 16: not quantized.
int InitialGradientBits(const ZeroConfig& config, const SlabKind& kind);

// `inter_bits` 4 or 8: what crosses nodes. Blocks stay inside the slab's rows.
CollectivePolicy GradientPolicy(const ZeroConfig& config, const SlabKind& kind, int inter_bits);
// What uncompressed gradients travel as; of 16 bits, bf16 instead of fp32.
DType GradientType(const ZeroConfig& config, const SlabKind& kind, bool sixteen_bits);

// Stages 0 to 2, and what stage 3 keeps whole: do replicas follow by encoded differences?
bool SendsDifferences(const ZeroConfig& config, const SlabKind& kind);
CollectivePolicy DifferencePolicy(const ZeroConfig& config, const SlabKind& kind);

// Stage 3: are gathers encoded?
bool CompressesGathers(const ZeroConfig& config, const SlabKind& kind);
CollectivePolicy GatherPolicy(const ZeroConfig& config, const SlabKind& kind);

}  // namespace zpp
