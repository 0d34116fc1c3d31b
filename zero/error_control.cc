#include "zero/error_control.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace zpp {
namespace {

bool AreBits(int bits) { return bits == 4 || bits == 8 || bits == 16; }

// A number that can be divided by and multiplied with: above 0 and finite.
bool IsFactor(double value) { return value > 0 && std::isfinite(value); }

}  // namespace

bool IsExactStep(int64_t step, int64_t period) { return period > 0 && step % period == 0; }

float ResidualCarry::Factor(double clip, double loss_scale_ratio) {
  if (!IsFactor(clip) || !IsFactor(loss_scale_ratio)) return 0;
  clip = std::min(clip, 1.0);
  const double carried = std::min(1.0, clip / mean_) * loss_scale_ratio;
  mean_ = std::max(kDecay * mean_ + (1 - kDecay) * clip, std::numeric_limits<double>::min());
  return static_cast<float>(
      std::min(carried, static_cast<double>(std::numeric_limits<float>::max())));
}

Status ResidualCarry::set_mean(double mean) {
  if (!(mean > 0 && mean <= 1)) {
    return DataLoss("a running mean of clip coefficients lies in (0, 1], not at " +
                    std::to_string(mean));
  }
  mean_ = mean;
  return {};
}

int FinerBits(int bits) { return bits <= 4 ? 8 : 16; }
int CoarserBits(int bits) { return bits >= 16 ? 8 : 4; }

Result<BitControl> BitControl::Create(int buckets, const BitControlOptions& options) {
  if (buckets < 0) return InvalidArgument("bit control of " + std::to_string(buckets) + " buckets");
  if (!AreBits(options.min_bits)) {
    return InvalidArgument("an encoding has 4, 8 or 16 bits, not " +
                           std::to_string(options.min_bits));
  }
  if (!(options.max_rel_error >= 0 && std::isfinite(options.max_rel_error))) {
    return InvalidArgument("max_rel_error must be a finite number that is not negative");
  }
  BitControl control;
  control.options_ = options;
  control.levels_.assign(static_cast<size_t>(buckets), {.bits = options.min_bits});
  return control;
}

bool BitControl::FitsCoarser(const Level& level, const ErrorStats& encoded,
                             const ErrorStats& coarser) const {
  if (CoarserBits(level.bits) < options_.min_bits || level.bits <= options_.min_bits) return false;
  double expected = std::numeric_limits<double>::infinity();
  if (coarser.sum_squared_value > 0) {
    expected = coarser.relative_error();
  } else if (level.bits == 8) {
    expected = kCoarserRatio * encoded.relative_error();
  }
  return expected < kDownMargin * options_.max_rel_error;
}

bool BitControl::Observe(int bucket, const ErrorStats& encoded, const ErrorStats& coarser) {
  const bool silent = !(encoded.sum_squared_value > 0) && !(coarser.sum_squared_value > 0);
  if (options_.max_rel_error == 0 || silent) return false;
  Level& level = levels_[static_cast<size_t>(bucket)];
  if (level.bits < 16 && encoded.relative_error() > options_.max_rel_error) {
    level = {.bits = FinerBits(level.bits)};
    return true;
  }
  level.calm = FitsCoarser(level, encoded, coarser) ? level.calm + 1 : 0;
  if (level.calm < kCalmAudits) return false;
  level = {.bits = CoarserBits(level.bits)};
  return true;
}

void BitControl::Reset() {
  for (Level& level : levels_) level = {.bits = options_.min_bits};
}

std::vector<int32_t> BitControl::state() const {
  std::vector<int32_t> state;
  for (const Level& level : levels_) {
    state.push_back(level.bits);
    state.push_back(level.calm);
  }
  return state;
}

Status BitControl::Restore(std::span<const int32_t> state) {
  if (state.size() != 2 * levels_.size()) {
    return DataLoss("bits of " + std::to_string(state.size() / 2) + " buckets, but there are " +
                    std::to_string(levels_.size()));
  }
  std::vector<Level> levels;
  for (size_t i = 0; i < state.size(); i += 2) {
    const Level level{.bits = state[i], .calm = state[i + 1]};
    if (!AreBits(level.bits) || level.calm < 0 || level.calm >= kCalmAudits) {
      return DataLoss("bucket " + std::to_string(i / 2) + " has an encoding of " +
                      std::to_string(level.bits) + " bits");
    }
    const bool allowed = options_.max_rel_error > 0 && level.bits >= options_.min_bits;
    levels.push_back(allowed ? level : Level{.bits = options_.min_bits});
  }
  levels_ = std::move(levels);
  return {};
}

}  // namespace zpp
