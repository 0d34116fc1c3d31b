#include "zero/config.h"

#include <array>
#include <cfloat>

#include "common/file.h"
#include "common/strict_json.h"
#include "topology/topology.h"
#include "zero/internal/config_check.h"
#include "zero/internal/config_section.h"

namespace zpp {
namespace {

constexpr int64_t kMaxElems = INT64_MAX;
constexpr ConfigRange<int64_t> kAnyInt32 = {INT32_MIN, INT32_MAX};
constexpr int64_t kMaxSteps = int64_t{1} << 40;
constexpr double kLargest = FLT_MAX;

constexpr ConfigChoice<DType> kDTypes[] = {
    {"fp32", DType::kF32}, {"fp16", DType::kF16}, {"bf16", DType::kBF16}};
constexpr ConfigChoice<OptimizerType> kOptimizers[] = {
    {"Adam", OptimizerType::kAdam}, {"AdamW", OptimizerType::kAdamW}, {"SGD", OptimizerType::kSgd}};
constexpr ConfigChoice<bool> kOffloadDevices[] = {{"none", false}, {"cpu", true}};
constexpr ConfigChoice<ErrorFeedbackMode> kFeedbackModes[] = {
    {"off", ErrorFeedbackMode::kOff},
    {"second_hop", ErrorFeedbackMode::kSecondHop},
    {"both", ErrorFeedbackMode::kBoth}};
constexpr ConfigChoice<ResidualType> kResidualTypes[] = {
    {"fp32", ResidualType::kF32}, {"bf16", ResidualType::kBF16}, {"int8", ResidualType::kInt8}};
constexpr ConfigChoice<Rounding> kRoundings[] = {{"nearest", Rounding::kNearest},
                                                 {"stochastic", Rounding::kStochastic}};
constexpr ConfigChoice<Code> kCodes[] = {{"sqrt", Code::kSqrt}, {"linear", Code::kLinear}};

template <typename E, size_t n>
std::span<const ConfigChoice<E>> All(const ConfigChoice<E> (&choices)[n]) {
  return choices;
}

void ReadPrecision(ConfigSection& top, ZeroConfig& config) {
  ConfigSection fp16 = top.Section("fp16");
  fp16.Bool("enabled", config.fp16.enabled);
  fp16.Number("loss_scale", {0, LossScaler::kMaxScale}, config.fp16.loss_scale);
  fp16.Integer("initial_scale_power", {0, 126}, config.fp16.initial_scale_power);
  fp16.Integer("loss_scale_window", {1, kMaxSteps}, config.fp16.loss_scale_window);
  fp16.Integer("hysteresis", {1, kMaxSteps}, config.fp16.hysteresis);
  fp16.Bool("consecutive_hysteresis", config.fp16.consecutive_hysteresis);
  fp16.Number("min_loss_scale", {FLT_MIN, LossScaler::kMaxScale}, config.fp16.min_loss_scale);
  CheckLossScale(fp16, config.fp16);
  fp16.Finish();

  bool bf16_enabled = false;
  ConfigSection bf16 = top.Section({"bf16", "bfloat16"});
  bf16.Bool("enabled", bf16_enabled);
  if (bf16_enabled && config.fp16.enabled) {
    bf16.Refuse("enabled", "and fp16.enabled cannot both be true: choose one of the two types");
  }
  bf16.Finish();
  if (config.fp16.enabled) config.compute = DType::kF16;
  if (bf16_enabled) config.compute = DType::kBF16;

  DType communication = config.compute;
  top.Choice("communication_data_type", All(kDTypes), communication);
  if (top.Has("communication_data_type")) config.communication = communication;
}

// DeepSpeed decouples the decay of "Adam" too, unless adam_w_mode is false; "AdamW" always does.
void ReadAdam(ConfigSection& params, ZeroConfig& config) {
  AdamConfig& adam = config.adam;
  bool adam_w_mode = true;
  bool torch_adam = false;
  params.Bool("adam_w_mode", adam_w_mode);
  params.Bool("torch_adam", torch_adam);
  if (config.optimizer == OptimizerType::kAdamW && !adam_w_mode) {
    params.Note("adam_w_mode", "has no effect here: AdamW always decouples the weight decay");
    adam_w_mode = true;
  }
  adam.decoupled = adam_w_mode;
  if (torch_adam && adam_w_mode) adam.weight_decay = 0.01;  // PyTorch's default, not DeepSpeed's
  params.Number("lr", {0, kLargest}, adam.lr);
  params.Pair("betas", {0, 1}, adam.beta1, adam.beta2);
  if (adam.beta1 == 1 || adam.beta2 == 1) params.Refuse("betas", "must be below 1");
  params.Number("eps", {0, kLargest}, adam.eps);
  params.Number("weight_decay", {0, kLargest}, adam.weight_decay);
  params.Bool("bias_correction", adam.bias_correction);
}

void ReadSgd(ConfigSection& params, SgdConfig& sgd) {
  params.Number("lr", {0, kLargest}, sgd.lr);
  params.Number("momentum", {0, kLargest}, sgd.momentum);
  params.Number("dampening", {-kLargest, kLargest}, sgd.dampening);
  params.Number("weight_decay", {0, kLargest}, sgd.weight_decay);
  params.Bool("nesterov", sgd.nesterov);
  if (sgd.nesterov && (sgd.momentum == 0 || sgd.dampening != 0)) {
    params.Refuse("nesterov", "needs a momentum above 0 and no dampening");
  }
}

void ReadOptimizer(ConfigSection& top, ZeroConfig& config) {
  ConfigSection optimizer = top.Section("optimizer");
  if (!top.Has("optimizer")) {
    top.Note("optimizer", "is missing: AdamW with a learning rate of 0.001 is used");
  } else if (!optimizer.Has("type")) {
    optimizer.RefuseAll("optimizer needs the key 'type': 'Adam', 'AdamW' or 'SGD'");
  }
  optimizer.Choice("type", All(kOptimizers), config.optimizer);
  ConfigSection params = optimizer.Section("params");
  switch (config.optimizer) {
    case OptimizerType::kAdam:
    case OptimizerType::kAdamW:
      ReadAdam(params, config);
      break;
    case OptimizerType::kSgd:
      ReadSgd(params, config.sgd);
      break;
  }
  params.Finish();
  optimizer.Finish();
}

void ReadOffload(ConfigSection& zero, OffloadConfig& offload) {
  zero.Bool("cpu_offload", offload.enabled);  // the old way to say it
  ConfigSection section = zero.Section("offload_optimizer");
  section.Choice("device", All(kOffloadDevices), offload.enabled);
  section.Bool("pin_memory", offload.pin_memory);
  section.Integer("buffer_count", {0, INT32_MAX}, offload.buffer_count);
  section.Bool("fast_init", offload.fast_init);
  if (offload.buffer_count != OffloadConfig{}.buffer_count) {
    section.Note("buffer_count", "has no effect here: the states are updated where they lie");
  }
  if (offload.fast_init) section.Note("fast_init", "has no effect here: there is no NVMe");
  section.Finish();
}

// LoCo corrects both hops, so it asks for feedback on both unless zero_pp says something else.
void ReadLoco(ConfigSection& zero, const ConfigSection& zero_pp, ZeroConfig& config) {
  ConfigSection section = zero.Section("zeropp_loco_param");
  if (!zero.Has("zeropp_loco_param")) return;
  LocoConfig loco;
  section.Number("err_beta", {0, 1}, loco.err_beta);
  section.Integer("reset_T", {1, kMaxSteps}, loco.reset_steps);
  section.NoteIfGiven({"err_beta"}, "has no effect here: what was lost is carried over whole");
  section.NoteIfGiven({"reset_T"}, "has no effect here: zero_pp.quant_period clears residuals");
  section.Finish();
  config.loco = loco;
  if (!zero_pp.Has("error_feedback")) config.zero_pp.error_feedback = ErrorFeedbackMode::kBoth;
}

void ReadStage3(ConfigSection& zero, ZeroConfig& config) {
  const ConfigKey prefetch("stage3_prefetch_bucket_size", "prefetch_bucket_size");
  const ConfigKey persistence("stage3_param_persistence_threshold", "param_persistence_threshold");
  const ConfigKey model("stage3_model_persistence_threshold", "model_persistence_threshold");
  const ConfigKey live("stage3_max_live_parameters", "max_live_parameters");
  const ConfigKey reuse("stage3_max_reuse_distance", "max_reuse_distance");
  const ConfigKey gather("stage3_gather_16bit_weights_on_model_save",
                         "gather_16bit_weights_on_model_save");
  zero.Integer(prefetch, {0, kMaxElems}, config.prefetch_bucket_elems);
  zero.Integer(persistence, {0, kMaxElems}, config.persistence_threshold_elems);
  zero.Integer(model, {0, kMaxElems}, config.model_persistence_elems);
  zero.Integer(live, {0, kMaxElems}, config.max_live_elems);
  zero.Integer(reuse, {0, kMaxElems}, config.max_reuse_distance_elems);
  zero.Bool("stage3_gather_fp16_weights_on_model_save",
            config.gather_16bit_on_save);  // its old name
  zero.Bool(gather, config.gather_16bit_on_save);
  if (config.stage == 3) return;
  zero.NoteIfGiven({prefetch, persistence, model, live, reuse, gather},
                   "has no effect below stage 3");
}

// After zero_pp, whose `enabled` is the default of two keys.
void ReadZero(ConfigSection& zero, const ConfigSection& zero_pp, ZeroConfig& config) {
  zero.Integer("stage", {0, 3}, config.stage);
  config.overlap_comm = config.stage == 3;
  zero.Bool("overlap_comm", config.overlap_comm);
  zero.Bool("contiguous_gradients", config.contiguous_gradients);
  zero.Integer("reduce_bucket_size", {0, kMaxElems}, config.reduce_bucket_elems);
  zero.Integer("allgather_bucket_size", {0, kMaxElems}, config.allgather_bucket_elems);
  zero.Integer("sub_group_size", {0, kMaxElems}, config.sub_group_elems);
  ReadStage3(zero, config);
  ReadOffload(zero, config.offload_optimizer);
  config.quantized_weights = config.zero_pp.enabled;
  config.quantized_gradients = config.zero_pp.enabled;
  zero.Bool("zero_quantized_weights", config.quantized_weights);
  zero.Bool("zero_quantized_gradients", config.quantized_gradients);
  zero.Integer("zero_hpz_partition_size", {1, Topology::kMaxWorld}, config.hpz_partition_size);
  ReadLoco(zero, zero_pp, config);
  zero.Finish();
}

void ReadZeroPp(ConfigSection& section, ZeroPpConfig& pp) {
  section.Bool("enabled", pp.enabled);
  section.Integer("quant_bits", kAnyInt32, pp.quant_bits);  // CheckZeroPp() knows which
  section.Integer("intra_bits", kAnyInt32, pp.intra_bits);
  section.Integer("weight_bits", kAnyInt32, pp.weight_bits);
  section.Integer("quant_period", {0, kMaxSteps}, pp.quant_period);
  section.Bool("use_contiguous_buffers", pp.use_contiguous_buffers);
  section.Integer("block_size", kAnyInt32, pp.block_size);
  section.Choice("error_feedback", All(kFeedbackModes), pp.error_feedback);
  section.Choice("residual", All(kResidualTypes), pp.residual);
  section.Number("max_rel_error", {0, 1}, pp.max_rel_error);
  section.Choice("rounding", All(kRoundings), pp.rounding);
  section.Choice("gradient_code", All(kCodes), pp.gradient_code);
  section.Bool("compress_1d", pp.compress_1d);
  section.Bool("reduce_every_micro_batch", pp.reduce_every_micro_batch);
  section.Finish();
}

void ReadBatch(ConfigSection& top, BatchKeys& batch) {
  top.Integer("train_batch_size", {1, BatchKeys::kMaxTrain}, batch.train);
  top.Integer("train_micro_batch_size_per_gpu", {1, BatchKeys::kMaxMicro}, batch.micro);
  top.Integer("gradient_accumulation_steps", {1, BatchKeys::kMaxAccumulation}, batch.accumulation);
}

// The whole of it; the first fault is in `text` afterwards.
ZeroConfig ReadAll(ConfigText& text, int world) {
  ZeroConfig config;
  BatchKeys batch;
  ConfigSection top(text);
  ReadBatch(top, batch);
  top.Number("gradient_clipping", {0, kLargest}, config.gradient_clipping);
  ReadPrecision(top, config);
  ReadOptimizer(top, config);
  ConfigSection zero_pp = top.Section("zero_pp");
  ReadZeroPp(zero_pp, config.zero_pp);
  bool old_style = false;  // "zero_optimization": true was stage 1
  ConfigSection zero = top.SectionOrBool("zero_optimization", old_style);
  if (old_style) config.stage = 1;
  ReadZero(zero, zero_pp, config);
  top.Finish();
  SetBatch(top, batch, world, config);
  CheckZero(zero, config, world);
  CheckZeroPp(zero_pp, config);
  return config;
}

}  // namespace

Result<ZeroConfig> ParseZeroConfig(std::string_view json, int data_parallel_world) {
  if (data_parallel_world < 1 || data_parallel_world > Topology::kMaxWorld) {
    return InvalidArgument("a configuration is for 1 to " + std::to_string(Topology::kMaxWorld) +
                           " ranks, not " + std::to_string(data_parallel_world));
  }
  ConfigText text;
  ZPP_ASSIGN_OR_RETURN(text.root, ParseStrictJson(json, {}, &text.lines));
  if (!text.root.is_object()) {
    return InvalidArgument("a configuration must be an object, not " + ShowJson(text.root));
  }
  ZeroConfig config = ReadAll(text, data_parallel_world);
  ZPP_RETURN_IF_ERROR(text.status);
  config.notes = std::move(text.notes);
  return config;
}

Result<ZeroConfig> ReadZeroConfig(const std::string& path, int data_parallel_world) {
  ZPP_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  const size_t limit = JsonLimits{}.max_bytes;
  std::string text(std::min(static_cast<size_t>(file.size_bytes()), limit + 1), '\0');
  ZPP_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  Result<ZeroConfig> config = ParseZeroConfig(text, data_parallel_world);
  if (config.ok()) return config;
  return Status(config.status().code(), "'" + path + "': " + config.status().message());
}

}  // namespace zpp
