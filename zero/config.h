// The configuration of the ZeRO layer: DeepSpeed's JSON as it stands, and ours ("zero_pp") beside
// it. zero/README.md says for each key what it does here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/dtype.h"
#include "common/status.h"
#include "quant/error_feedback.h"
#include "quant/quant_spec.h"
#include "zero/loss_scaler.h"
#include "zero/optimizer.h"

namespace zpp {

// Which hop's encoding keeps what it lost and adds it to the next vector.
enum class ErrorFeedbackMode : uint8_t { kOff, kSecondHop, kBoth };

enum class OptimizerType : uint8_t { kAdam, kAdamW, kSgd };

// "zero_pp": compressed communication and its error control. The bits are those of an element: 4
// and 8 are int4 and int8, 16 is as it is without compression.
struct ZeroPpConfig {
  bool enabled = false;
  int quant_bits = 4;                  // gradients across nodes, weight differences of stages 1-2
  int intra_bits = 8;                  // gradients inside a node
  int weight_bits = 8;                 // weight gathers of stage 3
  int64_t quant_period = 100;          // optimizer steps; every so many is exact. 0: never
  bool use_contiguous_buffers = true;  // false: one encoding per parameter instead of per bucket
  int32_t block_size = 0;              // elements that share a scale; 0: 128 for int4, 256 for int8
  ErrorFeedbackMode error_feedback = ErrorFeedbackMode::kSecondHop;
  ResidualType residual = ResidualType::kBF16;
  double max_rel_error = 0;  // above it a bucket moves to more bits; 0: never
  Rounding rounding = Rounding::kNearest;
  Code gradient_code = Code::kSqrt;       // of int4 gradients; weights are linear
  bool compress_1d = false;               // biases and norms too
  bool reduce_every_micro_batch = false;  // no full-size accumulators, more bytes sent

  bool operator==(const ZeroPpConfig&) const = default;

  // What the bits above mean to the codec.
  QuantSpec IntraGradients() const;
  QuantSpec InterGradients() const;
  QuantSpec WeightDifferences() const;
  QuantSpec WeightGathers() const;
};

// "fp16": what the loss scaler takes, and whether there is one.
struct LossScaleConfig : LossScalerConfig {
  bool enabled = false;
};

// "offload_optimizer": optimizer states in an arena of host memory of their own.
struct OffloadConfig {
  bool enabled = false;  // "device": "cpu"
  bool pin_memory = false;
  int buffer_count = 4;
  bool fast_init = false;

  bool operator==(const OffloadConfig&) const = default;
};

// "zeropp_loco_param" of DeepSpeed's LoCo. Asks for error feedback on both hops.
struct LocoConfig {
  double err_beta = 0.8;
  int64_t reset_steps = 1024;  // "reset_T"

  bool operator==(const LocoConfig&) const = default;
};

struct ZeroConfig {
  // train_batch_size = micro_batch_size * accumulation_steps * data-parallel world. All set.
  int64_t train_batch_size = 0;
  int64_t micro_batch_size = 0;  // per rank
  int accumulation_steps = 1;

  double gradient_clipping = 0;  // global norm; 0: off
  DType compute = DType::kF32;   // fp16 and bf16 keep fp32 master weights
  // What uncompressed gradients travel as; absent: the compute type.
  std::optional<DType> communication;
  LossScaleConfig fp16;

  OptimizerType optimizer = OptimizerType::kAdamW;
  AdamConfig adam;  // of kAdam and kAdamW
  SgdConfig sgd;

  int stage = 0;
  bool overlap_comm = false;  // reduce while the backward pass runs; default: stage 3
  bool contiguous_gradients = true;
  int64_t reduce_bucket_elems = 500'000'000;
  int64_t allgather_bucket_elems = 500'000'000;
  int64_t prefetch_bucket_elems = 50'000'000;
  // Stage 3: smaller parameters stay whole on every rank, as long as they sum up to no more than
  // the second figure.
  int64_t persistence_threshold_elems = 100'000;
  int64_t model_persistence_elems = INT64_MAX;
  int64_t max_live_elems = 1'000'000'000;
  int64_t max_reuse_distance_elems = 1'000'000'000;
  int64_t sub_group_elems = 1'000'000'000;  // the optimizer's tile
  bool gather_16bit_on_save = false;
  OffloadConfig offload_optimizer;

  // Whether weights and gradients are compressed at all, all things considered: DeepSpeed's keys
  // where they are given, zero_pp.enabled where not.
  bool quantized_weights = false;
  bool quantized_gradients = false;
  int hpz_partition_size = 1;  // ranks that share a secondary copy of the weights; 1: none
  std::optional<LocoConfig> loco;
  ZeroPpConfig zero_pp;

  // Accepted keys that have no effect here, and choices that cost accuracy: one sentence each, for
  // the caller to log.
  std::vector<std::string> notes;
};

// `data_parallel_world` is that of one model replica's copies, at least 1. kInvalidArgument with
// one sentence that names the key and its line; kDataLoss for what is not JSON.
Result<ZeroConfig> ParseZeroConfig(std::string_view json, int data_parallel_world);

// The same from a file. kNotFound when it cannot be opened; errors name the file.
Result<ZeroConfig> ReadZeroConfig(const std::string& path, int data_parallel_world);

// The effective configuration under the same keys, defaults filled in, without the notes. Parsing
// its dump for the same world gives the same configuration.
nlohmann::json ToJson(const ZeroConfig& config);

std::string_view ErrorFeedbackName(ErrorFeedbackMode mode);  // "off", "second_hop", "both"
std::string_view OptimizerName(OptimizerType type);          // "Adam", "AdamW", "SGD"

}  // namespace zpp
