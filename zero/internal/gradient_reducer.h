// From the trainer's gradients to the averaged gradient of this rank's part of every bucket:
// accumulation, buckets, reductions that overlap the backward pass, error feedback.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/feedback.h"
#include "common/buffer.h"
#include "common/status.h"
#include "quant/codec.h"
#include "zero/internal/buffer_pool.h"
#include "zero/internal/context.h"

namespace zpp::internal {

class GradientReducer {
 public:
  // How this step reduces; equal on all ranks.
  struct StepMode {
    int64_t step = 1;
    bool exact = false;  // uncompressed, with the residuals added in and cleared
    bool truth = false;  // also reduce uncompressed, for comparison
  };

  // No communication. kResourceExhausted.
  static Result<GradientReducer> Create(const EngineContext* context);

  void BeginStep(const StepMode& mode);
  // Adds to the accumulators; starts what is complete in the last micro-batch.
  Status Add(int param, const ConstVec& grad);
  Status EndMicroBatch();
  int micro_batch() const { return micro_batch_; }
  // Nothing has been added since BeginStep().
  bool untouched() const;
  Status Poll();
  // Waits until every bucket is reduced.
  Status Finish();
  // The step is over: accumulators are empty again.
  void EndStep();

  // Of this rank's own part, the mean over ranks of the sum over micro-batches; after Finish().
  std::span<float> gradient(int bucket) const;
  // The same without compression and residuals; empty unless mode.truth.
  std::span<float> truth(int bucket) const;
  // What the received gradient would have been compressed, at an exact step with mode.truth; else
  // gradient().
  std::span<float> received(int bucket) const;

  bool compresses(int bucket) const { return parts_[Index(bucket)].compressible; }
  int bits(int bucket) const { return parts_[Index(bucket)].bits; }
  // At a step's end. Residuals of a bucket that stops being encoded are flushed in its next step.
  void set_bits(int bucket, int bits) { parts_[Index(bucket)].bits = bits; }
  // Of what this rank encoded in this step: in the outermost hop, and before it.
  const ErrorStats& outer_stats(int bucket) const { return parts_[Index(bucket)].outer; }
  const ErrorStats& inner_stats(int bucket) const { return parts_[Index(bucket)].inner; }
  // Squares of what this exact step flushed, as it arrived in the own part.
  double flushed_sq(int bucket) const { return parts_[Index(bucket)].flushed_sq; }
  ReduceFeedback& feedback(int bucket) { return parts_[Index(bucket)].feedback; }
  // Hops that have feedback, innermost first: equal on all ranks, whether or not this one keeps a
  // residual there.
  std::vector<int> FeedbackTiers() const;
  Status ScaleResiduals(float factor);
  void DropResiduals();
  // After residuals were written from outside: whether any rank's may not be zero.
  void set_owes(bool owes);

  int64_t accumulator_bytes() const { return pool_.allocated_bytes(); }
  int64_t shard_bytes() const;
  int64_t residual_bytes() const;

 private:
  // What is owed at one hop, on its way.
  struct Flush {
    Buffer owed, arrived;
    Work work = Work::Ended({});
  };
  struct Part {
    bool compressible = false;
    int bits = 16;
    ReduceFeedback feedback;
    ErrorStats outer, inner;
    double flushed_sq = 0;
    int num_pieces = 0;
    int missing = 0;  // parameters' pieces that are not here yet in this micro-batch
    Buffer sum;       // fp32, the whole bucket; empty while nothing was added
    Buffer wire;      // what travels, when that is not fp32
    DType wire_type = DType::kF32;
    Buffer shard;        // fp32, the own part; stage 0 uses `sum`
    Buffer micro_shard;  // of the micro-batch being reduced, when every one is
    Buffer truth, shadow;
    std::optional<Work> work;
    bool micro_target = false;  // the work fills micro_shard
    bool owes = false;          // residuals may not be zero: equal on all ranks
    std::vector<Flush> flushes;
  };
  static size_t Index(int bucket) { return static_cast<size_t>(bucket); }

  bool ReducesNow() const;
  Status PrepareSum(int bucket);
  Status StartReady();
  Status StartAll();
  Status Start(int bucket);
  Status StartPlain(int bucket, std::span<float> out);
  Status StartCompressed(int bucket, std::span<float> out);
  Status CompareWithTruth(int bucket);
  Status ReduceTruth(int bucket);
  Status ReduceShadow(int bucket);
  Status AddMicroBatch(Buffer now, Buffer& sum);
  Status StartFlush(int bucket);
  Status Settle(int bucket);
  std::span<float> TargetOf(int bucket);
  CallOptions Call(int bucket) const;

  const EngineContext* context_ = nullptr;
  StepMode mode_;
  std::vector<Part> parts_;
  std::vector<std::vector<int>> buckets_of_param_;
  BufferPool pool_;
  int micro_batch_ = 0;
  size_t next_ = 0;         // in reduce_order: the first that has not been started
  size_t settled_ = 0;      // the first whose work has not been settled
  std::vector<int> added_;  // per parameter: micro-batches it was given a gradient in
};

}  // namespace zpp::internal
