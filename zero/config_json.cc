#include "zero/config.h"

namespace zpp {
namespace {

using Json = nlohmann::json;

std::string_view ResidualName(ResidualType type) {
  switch (type) {
    case ResidualType::kF32:
      return "fp32";
    case ResidualType::kBF16:
      return "bf16";
    case ResidualType::kInt8:
      return "int8";
  }
  return "";
}

Json LossScaleJson(const LossScaleConfig& fp16) {
  return {{"enabled", fp16.enabled},
          {"loss_scale", fp16.loss_scale},
          {"initial_scale_power", fp16.initial_scale_power},
          {"loss_scale_window", fp16.loss_scale_window},
          {"hysteresis", fp16.hysteresis},
          {"consecutive_hysteresis", fp16.consecutive_hysteresis},
          {"min_loss_scale", fp16.min_loss_scale}};
}

Json OptimizerParams(const ZeroConfig& config) {
  if (config.optimizer == OptimizerType::kSgd) {
    return {{"lr", config.sgd.lr},
            {"momentum", config.sgd.momentum},
            {"dampening", config.sgd.dampening},
            {"weight_decay", config.sgd.weight_decay},
            {"nesterov", config.sgd.nesterov}};
  }
  const AdamConfig& adam = config.adam;
  return {{"lr", adam.lr},
          {"betas", {adam.beta1, adam.beta2}},
          {"eps", adam.eps},
          {"weight_decay", adam.weight_decay},
          {"adam_w_mode", adam.decoupled},
          {"bias_correction", adam.bias_correction}};
}

Json ZeroJson(const ZeroConfig& config) {
  const OffloadConfig& offload = config.offload_optimizer;
  Json json = {{"stage", config.stage},
               {"overlap_comm", config.overlap_comm},
               {"contiguous_gradients", config.contiguous_gradients},
               {"reduce_bucket_size", config.reduce_bucket_elems},
               {"allgather_bucket_size", config.allgather_bucket_elems},
               {"sub_group_size", config.sub_group_elems},
               {"stage3_prefetch_bucket_size", config.prefetch_bucket_elems},
               {"stage3_param_persistence_threshold", config.persistence_threshold_elems},
               {"stage3_model_persistence_threshold", config.model_persistence_elems},
               {"stage3_max_live_parameters", config.max_live_elems},
               {"stage3_max_reuse_distance", config.max_reuse_distance_elems},
               {"stage3_gather_16bit_weights_on_model_save", config.gather_16bit_on_save},
               {"offload_optimizer",
                {{"device", offload.enabled ? "cpu" : "none"},
                 {"pin_memory", offload.pin_memory},
                 {"buffer_count", offload.buffer_count},
                 {"fast_init", offload.fast_init}}},
               {"zero_quantized_weights", config.quantized_weights},
               {"zero_quantized_gradients", config.quantized_gradients},
               {"zero_hpz_partition_size", config.hpz_partition_size}};
  if (config.loco) {
    json["zeropp_loco_param"] = {{"err_beta", config.loco->err_beta},
                                 {"reset_T", config.loco->reset_steps}};
  }
  return json;
}

Json ZeroPpJson(const ZeroPpConfig& pp) {
  return {{"enabled", pp.enabled},
          {"quant_bits", pp.quant_bits},
          {"intra_bits", pp.intra_bits},
          {"weight_bits", pp.weight_bits},
          {"quant_period", pp.quant_period},
          {"use_contiguous_buffers", pp.use_contiguous_buffers},
          {"block_size", pp.block_size},
          {"error_feedback", ErrorFeedbackName(pp.error_feedback)},
          {"residual", ResidualName(pp.residual)},
          {"max_rel_error", pp.max_rel_error},
          {"rounding", pp.rounding == Rounding::kNearest ? "nearest" : "stochastic"},
          {"gradient_code", pp.gradient_code == Code::kSqrt ? "sqrt" : "linear"},
          {"compress_1d", pp.compress_1d},
          {"reduce_every_micro_batch", pp.reduce_every_micro_batch}};
}

// `bits` of 16: not quantized.
QuantSpec Spec(const ZeroPpConfig& config, int bits, Code int4_code) {
  if (bits == 16) return QuantSpec::None();
  QuantSpec spec = bits == 4 ? QuantSpec::Int4(int4_code) : QuantSpec::Int8();
  if (config.block_size > 0) spec.block_elems = config.block_size;
  spec.rounding = config.rounding;
  return spec;
}

}  // namespace

QuantSpec ZeroPpConfig::IntraGradients() const { return Spec(*this, intra_bits, gradient_code); }
QuantSpec ZeroPpConfig::InterGradients() const { return Spec(*this, quant_bits, gradient_code); }
QuantSpec ZeroPpConfig::WeightDifferences() const { return Spec(*this, quant_bits, Code::kLinear); }
QuantSpec ZeroPpConfig::WeightGathers() const { return Spec(*this, weight_bits, Code::kLinear); }

Json ToJson(const ZeroConfig& config) {
  Json json = {{"train_batch_size", config.train_batch_size},
               {"train_micro_batch_size_per_gpu", config.micro_batch_size},
               {"gradient_accumulation_steps", config.accumulation_steps},
               {"gradient_clipping", config.gradient_clipping},
               {"communication_data_type", nullptr},
               {"fp16", LossScaleJson(config.fp16)},
               {"bf16", {{"enabled", config.compute == DType::kBF16}}},
               {"optimizer",
                {{"type", OptimizerName(config.optimizer)}, {"params", OptimizerParams(config)}}},
               {"zero_optimization", ZeroJson(config)},
               {"zero_pp", ZeroPpJson(config.zero_pp)}};
  if (config.communication) json["communication_data_type"] = DTypeName(*config.communication);
  return json;
}

std::string_view ErrorFeedbackName(ErrorFeedbackMode mode) {
  switch (mode) {
    case ErrorFeedbackMode::kOff:
      return "off";
    case ErrorFeedbackMode::kSecondHop:
      return "second_hop";
    case ErrorFeedbackMode::kBoth:
      return "both";
  }
  return "";
}

std::string_view OptimizerName(OptimizerType type) {
  switch (type) {
    case OptimizerType::kAdam:
      return "Adam";
    case OptimizerType::kAdamW:
      return "AdamW";
    case OptimizerType::kSgd:
      return "SGD";
  }
  return "";
}

}  // namespace zpp
