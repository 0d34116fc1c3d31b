// Error control as pure values: when a step is exact, how residuals carry over from step to step,
// and how many bits a bucket's encoding has. All ranks feed them the same figures, so all decide
// alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/status.h"
#include "quant/codec.h"

namespace zpp {

// Optimizer steps count from 1, and every period-th is exact: gradients are reduced uncompressed,
// residuals flushed, replicas made equal. 0: never; 1: always.
bool IsExactStep(int64_t step, int64_t period);

// By what the residuals are multiplied between two steps.
//
// The encoder of step t lost e, the optimizer applied c(t) times what arrived, so c(t) * e is owed;
// the next step multiplies by its own coefficient, which the running mean of the coefficients
// stands for. Hence min(1, c(t) / mean), times the change of the loss scale, in whose units
// residuals are. A clipped bad batch (c far below the mean) is damped, a trainer that always clips
// loses nothing.
class ResidualCarry {
 public:
  static constexpr double kDecay = 0.9;

  // Of one step that was applied: `clip` is its clip coefficient in 0..1, `loss_scale_ratio` the
  // next step's loss scale over this one's. Skipped steps are not told; their residuals are
  // dropped. At an exact step there are no residuals, but the mean follows. Always finite and never
  // negative: 0, which forgets the residuals, for arguments that are not finite and above 0.
  float Factor(double clip, double loss_scale_ratio);

  // The running mean, in (0, 1]. It starts at 1, as if nothing had been clipped, so that a bad
  // first batch is damped too. With set_mean(), all there is for a checkpoint.
  double mean() const { return mean_; }
  // kDataLoss for what is not in (0, 1].
  Status set_mean(double mean);

 private:
  double mean_ = 1;
};

struct BitControlOptions {
  int min_bits = 4;          // 4, 8 or 16: the configured bits; where every bucket starts
  double max_rel_error = 0;  // 0: never moves
};

// Bits of the encoding of each bucket: 4, 8 or 16, never below min_bits.
//
// Up one level when the audited relative error exceeds max_rel_error. Down one level when that of
// the next coarser encoding stayed below kDownMargin * max_rel_error in kCalmAudits audits in a
// row: the band between the two keeps a bucket from going back and forth.
class BitControl {
 public:
  static constexpr double kDownMargin = 0.7;
  static constexpr int kCalmAudits = 2;
  // One level of coarser linear codes multiplies the error by no more than about this.
  static constexpr double kCoarserRatio = 16;

  BitControl() = default;
  // kInvalidArgument for bits other than 4, 8, 16, or a bound that is negative or not finite.
  static Result<BitControl> Create(int buckets, const BitControlOptions& options);

  int buckets() const { return static_cast<int>(levels_.size()); }
  int bits(int bucket) const { return levels_[static_cast<size_t>(bucket)].bits; }

  // What all ranks together measured since the last audit: `encoded` of what was sent (decode(h)
  // against h), `coarser` of the same data in the next coarser encoding, see ProbeCoarser() in
  // zero/audit.h. Where `coarser` is empty, it is expected to be kCoarserRatio times `encoded` at 8
  // bits, and unknown at 16. Statistics without a value other than zero say nothing and change
  // nothing. True when the bits changed.
  bool Observe(int bucket, const ErrorStats& encoded, const ErrorStats& coarser = {});

  // All buckets at min_bits again.
  void Reset();
  // Two numbers per bucket, for checkpoints. Restore: kDataLoss for what state() never gives for as
  // many buckets. What the options do not allow, as they may have changed, becomes min_bits.
  std::vector<int32_t> state() const;
  Status Restore(std::span<const int32_t> state);

 private:
  struct Level {
    int bits = 4;
    int calm = 0;  // audits in a row in which a coarser encoding would have done
  };
  bool FitsCoarser(const Level& level, const ErrorStats& encoded, const ErrorStats& coarser) const;

  BitControlOptions options_;
  std::vector<Level> levels_;
};

// 4 -> 8 -> 16 -> 16 and 16 -> 8 -> 4 -> 4.
int FinerBits(int bits);
int CoarserBits(int bits);

}  // namespace zpp
