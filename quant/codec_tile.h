// Internal: encodes a vector that arrives in fp32 tiles, as ReduceRecode and error feedback make
// it.
#pragma once

#include <cstdint>
#include <span>

#include "quant/codec.h"

namespace zpp {

// Largest tile, and the grid on which tiles start: that of every block size.
inline constexpr int64_t kTile_elems = kMaxBlock_elems;

// The payload that tiles go to: that of `elems` elements, whose size the caller has checked.
struct TileTarget {
  QuantSpec spec;
  std::span<std::byte> payload;
  int64_t elems = 0;
  NoiseKey noise;       // first_elem is that of the whole vector
  bool stream = false;  // codes past the caches; the caller orders them
};

// kInvalidArgument unless a payload of `bytes` holds `elems` elements.
Status CheckPayloadSize(const QuantSpec& spec, int64_t elems, size_t bytes);

// Zeros between scales and codes: once per payload.
void ClearPadding(const TileTarget& target);

// values[0..] are the elements from `at` on, at most kTile_elems of them. With `decoded`, what they
// became is written there; with `stats` too, their errors are added.
void EncodeTile(const TileTarget& target, int64_t at, std::span<const float> values,
                float* decoded = nullptr, ErrorStats* stats = nullptr);

// What ReduceRecode asks of its arguments.
Status CheckReduce(const ReduceArgs& args, std::span<const std::byte> out);

// sum[i] = (in_0 + in_1 + ...) / divisor at element at + i, at most kTile_elems of them. `args` has
// been checked.
void SumTile(const ReduceArgs& args, int64_t at, std::span<float> sum);

}  // namespace zpp
