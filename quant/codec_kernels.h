// Internal: what a SIMD target provides. codec.cc checks the arguments, walks the vectors in tiles
// and calls these. Every `data`, scale and code pointer may lie at any alignment; element counts
// may be anything from 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "quant/codec.h"

namespace zpp {

// Where a payload's scales and codes lie, from some block on. For kNone: codes are the plain
// values.
struct PayloadOut {
  std::byte* scales = nullptr;
  std::byte* codes = nullptr;
};
struct PayloadIn {
  const std::byte* scales = nullptr;
  const std::byte* codes = nullptr;
};
struct SumOperand {
  QuantSpec spec;
  PayloadIn payload;
};

struct CodecKernels {
  std::string_view name;
  // `stream`: the destination is larger than the caches and is written past them. Such stores are
  // ordered by nobody here: hwy::FlushStream() after the last call.

  // A compressed spec. `in` starts on the block grid; noise.first_elem is its first element's.
  void (*encode)(const QuantSpec& spec, ConstVec in, PayloadOut out, const NoiseKey& noise,
                 bool stream);
  // A compressed spec. `out` starts on the block grid.
  void (*decode)(const QuantSpec& spec, PayloadIn in, Vec out, bool stream);
  // acc[i] += decoded i.
  void (*accumulate)(const QuantSpec& spec, PayloadIn in, float* acc, int64_t elems);
  // out = (in_0 + in_1 + ...) / divisor, at least one operand, each from the start of a block of
  // its own. out may be the memory of one plain operand of its element size.
  void (*sum)(std::span<const SumOperand> in, float divisor, Vec out);
  // out = in in another type, to nearest even.
  void (*convert)(ConstVec in, Vec out);
  // memcpy past the caches.
  void (*stream)(const std::byte* from, int64_t bytes, std::byte* to);
};

// The compiled target of that name; nullptr when this CPU or build has none.
const CodecKernels* FindKernels(std::string_view name);
// ZPP_TARGET's, or the best.
const CodecKernels* DefaultKernels();
// The plain C++ of codec_math.h: the reference that the others are compared with.
const CodecKernels& ScalarKernels();
// Compiled SIMD targets that this CPU has, best first.
std::span<const CodecKernels* const> SimdKernels();

}  // namespace zpp
