// The rows of `zpp bw codec`: what the codec reaches on this machine, as ratios to what the machine
// itself reaches.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/status.h"
#include "quant/quant_spec.h"

namespace zpp {

struct CodecBenchArgs {
  std::vector<int64_t> counts = {int64_t{64} << 10, int64_t{64} << 20};  // elements
  std::vector<QuantSpec> specs = {QuantSpec::Int8(), QuantSpec::Int4(Code::kLinear),
                                  QuantSpec::Int4(Code::kSqrt)};
  std::vector<DType> dtypes = {DType::kF32, DType::kBF16};
  bool all_targets = false;
  // Values to encode, repeated or cut to each count; empty: N(0,1).
  std::span<const float> data;
  // Each row is timed for at least so long, together with its yardsticks.
  double min_s = 0.2;
};

// One measurement. GB/s = 1e9 bytes per second of the vector's own type.
struct CodecRow {
  std::string op;  // encode, decode, decode_accumulate, reduce_recode, memcpy, read, fill, update
  std::string format;    // "none", "int8" or "int4"; "none" for the yardsticks
  std::string code;      // "linear", "sqrt", "-"
  std::string rounding;  // "nearest", "stochastic", "-"
  DType dtype = DType::kF32;
  int32_t block = 0;
  int64_t count = 0;
  std::string target;  // "-" for the yardsticks
  double gb_per_s = 0;
  double ratio = 0;  // to memcpy of the same bytes, timed in turns with this row
  double of_roof =
      0;  // to the op's roof: read, fill or update of the bytes that it must move anyway
  // ||decoded - x|| / ||x||; NaN when nothing finite but zeros was there beside NaN or infinity.
  double rel_error = 0;
};

// Medians, op and yardsticks timed in turns; results are verified while they are measured.
// reduce_recode sums four payloads and counts the bytes of its output, its roof is `read` of its
// input bytes. Needs about eight times the bytes of the largest vector. kInvalidArgument for a bad
// option, kResourceExhausted, kInternal when a result is wrong.
Result<std::vector<CodecRow>> MeasureCodec(const CodecBenchArgs& args);

}  // namespace zpp
