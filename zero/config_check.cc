#include "zero/internal/config_check.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace zpp {
namespace {

constexpr const char* kTrain = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kAccumulation = "gradient_accumulation_steps";

// "4 ranks", "1 rank".
std::string Ranks(int64_t world) {
  return std::to_string(world) + (world == 1 ? " rank" : " ranks");
}

std::string Named(const char* key, int64_t value) {
  return std::string(key) + ' ' + std::to_string(value);
}

void CheckBits(ConfigSection& section, const char* key, int bits) {
  if (bits == 4 || bits == 8 || bits == 16) return;
  section.Refuse(key, "must be 4, 8 or 16, not " + std::to_string(bits));
}

void CheckBlock(ConfigSection& section, const ZeroPpConfig& config) {
  const int32_t block = config.block_size;
  const bool fits = block == 0 || (block >= kMinBlock_elems && block <= kMaxBlock_elems &&
                                   std::has_single_bit(static_cast<uint32_t>(block)));
  if (!fits) {
    section.Refuse("block_size",
                   "must be 0 or a power of two from " + std::to_string(kMinBlock_elems) + " to " +
                       std::to_string(kMaxBlock_elems) + ", not " + std::to_string(block));
  }
}

// Choices that work and cost accuracy.
void NoteCosts(ConfigSection& section, const ZeroConfig& config) {
  const ZeroPpConfig& pp = config.zero_pp;
  const bool int4_gradients =
      config.quantized_gradients && (pp.quant_bits == 4 || pp.intra_bits == 4);
  const bool int4_weights =
      config.quantized_weights && (config.stage == 3 ? pp.weight_bits : pp.quant_bits) == 4;
  if (pp.block_size > 256 && (int4_gradients || int4_weights)) {
    section.Note("block_size",
                 "is long for int4: above 256 elements a scale serves values that differ too much, "
                 "which costs several percent of the loss");
  }
  if (int4_weights && config.stage == 3) {
    section.Note("weight_bits", "of 4 costs 1 to 2 percent of the loss; 8 costs next to nothing");
  }
  if (config.quantized_gradients && pp.intra_bits == 4 &&
      pp.error_feedback != ErrorFeedbackMode::kBoth) {
    section.Note("intra_bits", "of 4 wants error_feedback 'both'");
  }
  if (config.quantized_gradients && pp.max_rel_error > 0 && pp.quant_period == 0) {
    section.Note("max_rel_error",
                 "has no effect while quant_period is 0: bits change at exact steps");
  }
}

// Of a batch key that is not written; one that is lies within its limit.
void CheckDerived(ConfigSection& top, const char* key, int64_t value, int64_t limit) {
  if (value <= limit) return;
  top.Refuse(kTrain, std::string("makes ") + Named(key, value) + ", which is above " +
                         std::to_string(limit));
}

// Needs that both keys of compression share.
void CheckQuantized(ConfigSection& zero, const char* key, bool on, const ZeroConfig& config) {
  if (!on || config.stage > 0 || !zero.Has(key)) return;
  zero.Refuse(key, "needs stage 1, 2 or 3: stage 0 exchanges everything whole and as it is");
}

void CheckHpz(ConfigSection& zero, const ZeroConfig& config, int world) {
  const char* key = "zero_hpz_partition_size";
  const int size = config.hpz_partition_size;
  if (size == 1) return;
  const std::string shown = "of " + std::to_string(size);
  if (config.stage != 3) {
    zero.Refuse(key, shown + " needs stage 3, not " + std::to_string(config.stage) +
                         ": only there are weights gathered");
  } else if (world % size != 0) {
    zero.Refuse(key, shown + " does not divide the " + Ranks(world));
  }
}

}  // namespace

void SetBatch(ConfigSection& top, const BatchKeys& batch, int world, ZeroConfig& config) {
  if (batch.train == 0 && batch.micro == 0) {
    return top.RefuseAll(std::string("the configuration needs ") + kTrain + " or " + kMicro);
  }
  // Bounded by the ranges of the keys: no product overflows.
  int64_t accumulation = batch.accumulation;
  if (accumulation == 0) {
    accumulation = batch.train > 0 && batch.micro > 0 ? batch.train / batch.micro / world : 1;
  }
  const int64_t micro =
      batch.micro > 0 ? batch.micro : batch.train / world / std::max<int64_t>(accumulation, 1);
  CheckDerived(top, kMicro, micro, BatchKeys::kMaxMicro);
  CheckDerived(top, kAccumulation, accumulation, BatchKeys::kMaxAccumulation);
  const int64_t train = micro * accumulation * world;
  config.train_batch_size = train;
  config.micro_batch_size = micro;
  config.accumulation_steps = static_cast<int>(accumulation);
  if (batch.train == 0 || batch.train == train) return;
  std::string parts;
  if (batch.micro > 0) parts += Named(kMicro, batch.micro) + " x ";
  if (batch.accumulation > 0) parts += Named(kAccumulation, batch.accumulation) + " x ";
  const bool all = batch.micro > 0 && batch.accumulation > 0;
  top.Refuse(kTrain, "is " + std::to_string(batch.train) + ", which is not " +
                         (all ? "" : "a multiple of ") + parts + Ranks(world));
}

void CheckLossScale(ConfigSection& fp16, const LossScaleConfig& config) {
  const bool dynamic = config.loss_scale == 0;
  if (dynamic && std::ldexp(1.0, config.initial_scale_power) < config.min_loss_scale) {
    fp16.Refuse("min_loss_scale", "is above the first loss scale, 2 to the initial_scale_power " +
                                      std::to_string(config.initial_scale_power));
  }
}

void CheckZero(ConfigSection& zero, const ZeroConfig& config, int world) {
  CheckHpz(zero, config, world);
  CheckQuantized(zero, "zero_quantized_weights", config.quantized_weights, config);
  CheckQuantized(zero, "zero_quantized_gradients", config.quantized_gradients, config);
  if (config.offload_optimizer.enabled && config.stage == 0) {
    zero.Refuse("offload_optimizer", "needs stage 1, 2 or 3");
  }
  if (config.loco && !config.quantized_gradients) {
    zero.Refuse("zeropp_loco_param", "needs zero_quantized_gradients or zero_pp.enabled");
  }
  if (!config.contiguous_gradients) {
    zero.Note("contiguous_gradients", "has no effect here: gradients always lie in buckets");
  }
}

void CheckZeroPp(ConfigSection& zero_pp, const ZeroConfig& config) {
  const ZeroPpConfig& pp = config.zero_pp;
  CheckBits(zero_pp, "quant_bits", pp.quant_bits);
  CheckBits(zero_pp, "intra_bits", pp.intra_bits);
  CheckBits(zero_pp, "weight_bits", pp.weight_bits);
  CheckBlock(zero_pp, pp);
  if (pp.enabled && config.stage == 0) {
    zero_pp.Refuse("enabled",
                   "needs zero_optimization.stage 1, 2 or 3: stage 0 exchanges everything whole "
                   "and as it is");
  }
  if (pp.reduce_every_micro_batch && config.stage == 0) {
    zero_pp.Refuse("reduce_every_micro_batch",
                   "needs zero_optimization.stage 1, 2 or 3: in stage 0 every rank keeps all "
                   "gradients anyway");
  }
  NoteCosts(zero_pp, config);
}

}  // namespace zpp
