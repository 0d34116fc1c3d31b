#include "quant/codec_stats.h"

#include <algorithm>
#include <cmath>

#include "quant/codec_math.h"

namespace zpp {
namespace {

bool IsFinite(float x) { return (BitsOf(x) & 0x7fffffffu) < kInfinityBits; }

// Elements that decode further inside than this are clipped; a little more than half the outermost
// step.
float ClipDistance(const QuantSpec& spec, float absmax) {
  if (spec.rounding == Rounding::kStochastic || spec.format == Format::kInt8) {
    return kLargestF32;  // the range is symmetric: nothing is clipped
  }
  const float scale = std::fabs(MakeScale(spec, BitsOf(absmax), 0).scale);
  const float half_gap = spec.code == Code::kSqrt ? 7.5f : 0.5f;
  return scale == 0 ? kLargestF32 : half_gap * scale * (1 + 0x1p-14f);
}

void AddBlock(const QuantSpec& spec, const float* values, const float* decoded, int64_t elems,
              ErrorStats& stats) {
  float absmax = 0;
  int64_t nonfinite = 0;
  for (int64_t i = 0; i < elems; ++i) {
    nonfinite += IsFinite(values[i]) ? 0 : 1;
    absmax = std::max(absmax, std::fabs(values[i]));
  }
  stats.nonfinite += nonfinite;
  if (nonfinite > 0 && spec.compressed()) return;  // the whole block decodes to NaN
  const float clip = spec.compressed() ? ClipDistance(spec, absmax) : kLargestF32;
  double squared_error = 0, squared_value = 0, max_error = stats.max_abs_error;
  for (int64_t i = 0; i < elems; ++i) {
    if (!IsFinite(values[i])) continue;
    const bool overflowed = !IsFinite(decoded[i]);
    stats.clipped += overflowed || std::fabs(values[i]) - std::fabs(decoded[i]) > clip ? 1 : 0;
    stats.nonzero += values[i] != 0 ? 1 : 0;
    stats.zeroed += values[i] != 0 && decoded[i] == 0 ? 1 : 0;
    if (overflowed) continue;
    const double value = values[i];
    const double error = decoded[i] - value;
    squared_error += error * error;
    squared_value += value * value;
    max_error = std::max(max_error, std::fabs(error));
  }
  stats.sum_squared_error += squared_error;
  stats.sum_squared_value += squared_value;
  stats.max_abs_error = max_error;
}

}  // namespace

void AddErrors(const QuantSpec& spec, const float* values, const float* decoded, int64_t elems,
               ErrorStats& stats) {
  const int64_t block = spec.compressed() ? spec.block_elems : elems;
  for (int64_t at = 0; at < elems; at += block) {
    AddBlock(spec, values + at, decoded + at, std::min(block, elems - at), stats);
  }
}

double ErrorStats::relative_error() const {
  if (sum_squared_value == 0) return 0;
  return std::sqrt(sum_squared_error / sum_squared_value);
}

void ErrorStats::Merge(const ErrorStats& other) {
  sum_squared_error += other.sum_squared_error;
  sum_squared_value += other.sum_squared_value;
  max_abs_error = std::max(max_abs_error, other.max_abs_error);
  clipped += other.clipped;
  nonfinite += other.nonfinite;
  nonzero += other.nonzero;
  zeroed += other.zeroed;
}

}  // namespace zpp
