// Internal: adds the errors of one encoded run to ErrorStats.
#pragma once

#include <cstdint>

#include "quant/codec.h"

namespace zpp {

// `values` as they were, `decoded` as they came back, starting on the block grid of `spec`. One
// implementation for all targets, so that the sums, too, are the same everywhere.
void AddErrors(const QuantSpec& spec, const float* values, const float* decoded, int64_t elems,
               ErrorStats& stats);

}  // namespace zpp
