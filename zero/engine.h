// ZeRO stages 0 to 3 over named parameter tensors, with compressed communication and error control.
//
// One engine per rank of a data-parallel communicator. A training step, on every rank alike:
//
//   for each micro-batch (accumulation_steps of them):
//     for each unit of the forward pass:   Gather(u); compute with Weights(p); Release(u)
//     for each unit of the backward pass:  Gather(u); compute; AddGradient(p, g) ...; Release(u)
//     EndMicroBatch()
//   Step()
//
// All ranks make the same calls in the same order, AddGradient() included: a parameter that only
// some ranks have used is given zeros on the others. One thread at a time uses an engine, its
// communicator and its groups. Gradients are those of the micro-batch's mean loss times
// loss_scale(); the engine averages over ranks and micro-batches. Without compression stages 0 to 3
// give the same bits, whatever the bucket sizes.
//
// kInvalidArgument leaves everything as it was. Any other error sticks: the calls of a step return
// it until LoadWeights() or Load() succeeds, and where the communicator failed for ever.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "common/status.h"
#include "quant/codec.h"
#include "zero/audit.h"
#include "zero/config.h"
#include "zero/memory_estimate.h"
#include "zero/parameters.h"

namespace zpp {

struct EngineOptions {
  // The ranks that hold the other parts of the same model replica (tensor and pipeline parallel):
  // gradient norm and overflow span them. Borrowed; null when this rank's parameters are all.
  Communicator* norm_group = nullptr;
  uint64_t seed = 0;  // stochastic rounding; the same on all ranks
  AuditOptions audit = {};
};

struct StepReport {
  int64_t step = 0;      // of this call, from 1; skipped ones count
  bool skipped = false;  // an overflow: nothing was applied
  bool exact = false;    // an exact step of quant_period, which counts the steps that were applied
  double grad_norm = 0;  // of the averaged, unscaled gradient, before clipping; NaN when skipped
  double clip_coefficient = 1;
  double loss_scale = 1;  // that this step's gradients carried
  // Of what all ranks encoded of the gradients in this step, and of the weights since the last
  // step: ||decoded - h|| / ||h||. 0 when nothing was encoded.
  double gradient_rel_error = 0;
  double weight_rel_error = 0;
  // Bytes that this rank sent in this step, from its first Gather, AddGradient or EndMicroBatch on,
  // per tier of the communicator's topology: all that went over the communicator, another engine's
  // too.
  std::vector<int64_t> sent_bytes;
};

class ZeroEngine {
 public:
  // `data_parallel` is borrowed. Collective. kInvalidArgument in one sentence for parameters or a
  // config that do not go together (hpZ that does not divide the nodes, ...), kResourceExhausted,
  // kMismatch when the ranks' parameters or configs differ.
  static Result<std::unique_ptr<ZeroEngine>> Create(Communicator& data_parallel,
                                                    const ZeroConfig& config,
                                                    std::vector<ParamSpec> params,
                                                    const EngineOptions& options = {});
  // Waits for what is in flight, prefetched weights for instance: all ranks end their engines.
  ~ZeroEngine();

  // Sets all weights, in the order of the parameters, each whole and of any plain type. Every rank
  // passes the same values: kMismatch names the parameter otherwise. Optimizer state, residuals,
  // loss scale, bits and counters start anew, and what the step under way has so far is dropped.
  // kInvalidArgument while a unit is gathered. Collective.
  Status LoadWeights(std::span<const ConstVec> weights);
  // out = the fp32 master weights of one parameter, whole, on every rank. Collective.
  Status ReadWeights(int param, std::span<float> out);

  // Makes the unit's weights readable. Stage 3 gathers, and prefetches what the last step needed
  // next; other stages have them already.
  Status Gather(int unit);
  // The trainer has done with them for now.
  Status Release(int unit);
  // Of the type the parameter computes in; valid between Gather() and Release() of its unit.
  // Empty (data null) when the unit is not gathered.
  ConstVec Weights(int param) const;

  // Adds one parameter's gradient of this micro-batch, whole, of any plain type; at most once per
  // micro-batch. `grad` is free on return. In the last micro-batch a bucket whose gradients are all
  // there starts to be reduced. What a parameter is not given counts as zero. kInvalidArgument for
  // a frozen parameter or a wrong size.
  Status AddGradient(int param, ConstVec grad);
  // Moves bytes; to be called now and then while computing.
  Status Poll();
  Status EndMicroBatch();
  // Finishes the reductions, clips, updates the shards, refreshes the replicas. kInvalidArgument
  // before accumulation_steps micro-batches have ended, while a unit is gathered, for a learning
  // rate that is negative or not finite, and when fp16's loss scale cannot go lower.
  Result<StepReport> Step();

  double loss_scale() const;
  // From the next Step() on; the same on all ranks. Not part of a checkpoint: after Load() the
  // trainer sets it again.
  void set_learning_rate(double lr);
  int64_t steps() const;  // done, skipped ones included
  const ZeroConfig& config() const;
  std::span<const ParamSpec> params() const;
  MemoryEstimate memory() const;  // what is held now, by purpose
  const Audit& audit() const;

  // Sharded checkpoint in dir/step-N (see zero/checkpoint.h): weights, optimizer state, residuals,
  // scaler, counters, and `user`, which Load() gives back; with gather_16bit_on_save what
  // SaveWeights() gives, too, in dir/weights.safetensors. Resuming on the same layout gives the
  // bits of an unbroken run; another world size or stage continues. Collective. Save:
  // kInvalidArgument between a step's first AddGradient() and its Step(). Load: drops the step
  // under way; kInvalidArgument while a unit is gathered, kNotFound and a checkpoint of another
  // model change nothing.
  Status Save(const std::string& dir, const std::string& user = {});
  Result<std::string> Load(const std::string& dir);
  // All weights as one safetensors file, written by rank 0: the masters rounded to the type the
  // trainer computes in. Collective.
  Status SaveWeights(const std::string& path);

 private:
  class Impl;
  explicit ZeroEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace zpp
