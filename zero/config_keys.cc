#include "zero/internal/config_keys.h"

#include <algorithm>
#include <array>
#include <vector>

#include "zero/config.h"

namespace zpp {
namespace {

using Json = nlohmann::json;

constexpr auto kNoted = InertEffect::kNoted;
constexpr auto kRefused = InertEffect::kRefused;
constexpr std::string_view kZero = "zero_optimization";
constexpr std::string_view kOffload = "zero_optimization.offload_optimizer";
constexpr std::string_view kParams = "optimizer.params";

constexpr std::string_view kNoReports = "has no effect here: reports are the trainer's own";
constexpr std::string_view kOwnBuffers =
    "has no effect here: how buckets and units travel is the engine's own choice";
constexpr std::string_view kOwnModel =
    "is refused: the model's own computation is the trainer's, and ignoring it would train "
    "something else";
constexpr std::string_view kOwnData =
    "is refused: batches are the trainer's to choose, and ignoring it would train on others";
constexpr std::string_view kNoNvme = "has no effect here: there is no offload to NVMe";
constexpr std::string_view kFp32States =
    "is refused: master weights and optimizer states are always fp32 here";
constexpr std::string_view kGroups =
    "is refused: tensor, pipeline, sequence and expert parallel groups come from the trainer";

// DeepSpeed's keys by section; zero/README.md has the same table in words.
constexpr InertKey kInertKeys[] = {
    {"", "steps_per_print", "null", kNoted, kNoReports},
    {"", "wall_clock_breakdown", "false", kNoted, kNoReports},
    {"", "memory_breakdown", "false", kNoted, kNoReports},
    {"", "dump_state", "false", kNoted, kNoReports},
    {"", "tensorboard", "null", kNoted, kNoReports},
    {"", "wandb", "null", kNoted, kNoReports},
    {"", "comet", "null", kNoted, kNoReports},
    {"", "csv_monitor", "null", kNoted, kNoReports},
    {"", "flops_profiler", "null", kNoted, kNoReports},
    {"", "comms_logger", "null", kNoted, kNoReports},
    {"", "timers", "null", kNoted, kNoReports},
    {"", "log_level", "null", kNoted, "has no effect here: ZPP_LOG chooses what is logged"},
    {"", "autotuning", "null", kNoted, "has no effect here: nothing is tuned"},
    {"", "zero_allow_untested_optimizer", "false", kNoted,
     "has no effect here: the optimizer is the engine's own"},
    {"", "zero_force_ds_cpu_optimizer", "true", kNoted,
     "has no effect here: the optimizer is the engine's own"},
    {"", "checkpoint", "null", kNoted, "has no effect here: checkpoints have a form of their own"},
    {"", "nebula", "null", kNoted, "has no effect here: checkpoints have a form of their own"},
    {"", "datastates_ckpt", "null", kNoted,
     "has no effect here: checkpoints have a form of their own"},
    {"", "aio", "null", kNoted, kNoNvme},
    {"", "activation_checkpointing", "null", kNoted,
     "has no effect here: activations are the trainer's"},
    {"", "compile", "null", kNoted, "has no effect here: nothing is compiled"},
    {"", "graph_harvesting", "false", kNoted, "has no effect here: there are no graphs"},
    {"", "vocabulary_size", "null", kNoted, "has no effect here: the model is the trainer's"},
    {"", "dataloader_drop_last", "null", kNoted, "has no effect here: batches are the trainer's"},
    {"", "disable_allgather", "false", kNoted, kOwnBuffers},
    {"", "allgather_size", "null", kNoted,
     "has no effect here: zero_optimization.allgather_bucket_size takes its place"},
    {"", "prescale_gradients", "false", kNoted,
     "has no effect here: the mean is taken at the first reduction, in fp32"},
    {"", "gradient_predivide_factor", "1", kNoted,
     "has no effect here: the mean is taken at the first reduction, in fp32"},
    {"", "data_types", "null", kNoted, "has no effect here: gradients are accumulated in fp32"},
    {"", "use_data_before_expert_parallelism", "false", kNoted,
     "has no effect here: groups of ranks come from the trainer"},
    {"", "use_node_local_storage", "false", kNoted,
     "has no effect here: checkpoints have a form of their own"},
    {"", "scheduler", "null", kRefused,
     "is refused: the trainer sets the learning rate of every step, and ignoring a schedule would "
     "train at another"},
    {"", "amp", "null", kRefused, "is refused: use 'fp16' or 'bf16'"},
    {"", "torch_autocast", "null", kRefused, "is refused: use 'fp16' or 'bf16'"},
    {"", "gradient_allreduce_op", "\"mean\"", kRefused,
     "is refused: gradients are averaged over ranks and micro-batches"},
    {"", "managed_gradient_accumulation", "true", kRefused,
     "is refused: the engine counts the micro-batches of a step itself"},
    {"", "sparse_gradients", "false", kRefused, "is refused: gradients are dense here"},
    {"", "sparse_attention", "null", kRefused, kOwnModel},
    {"", "progressive_layer_drop", "null", kRefused, kOwnModel},
    {"", "compression_training", "null", kRefused, kOwnModel},
    {"", "quantize_training", "null", kRefused, kOwnModel},
    {"", "weight_quantization", "null", kRefused, kOwnModel},
    {"", "eigenvalue", "null", kRefused, kOwnModel},
    {"", "hybrid_engine", "null", kRefused, kOwnModel},
    {"", "curriculum_learning", "null", kRefused, kOwnData},
    {"", "data_efficiency", "null", kRefused, kOwnData},
    {"", "elasticity", "null", kRefused,
     "is refused: batch sizes are those written, whatever the number of ranks"},
    {"", "pipeline", "null", kRefused, kGroups},
    {"", "tensor_parallel", "null", kRefused, kGroups},
    {"", "expert_parallel", "null", kRefused, kGroups},
    {"", "sequence_parallel_size", "1", kRefused, kGroups},
    {"", "seq_parallel_communication_data_type", "\"fp32\"", kRefused, kGroups},
    {"", "seq_parallel_comm_data_type", "\"fp32\"", kRefused, kGroups},

    {"fp16", "auto_cast", "false", kNoted, "has no effect here: inputs are the trainer's"},
    {"fp16", "fused_mode", "true", kNoted, "has no effect here: there is one optimizer"},
    {"fp16", "fp16_master_weights_and_grads", "false", kRefused, kFp32States},
    {"bf16", "immediate_grad_update", "false", kNoted,
     "has no effect here: every gradient goes into its accumulator at once"},
    {"bf16", "check_grad_overflow", "true", kNoted,
     "has no effect here: a step whose gradient is not finite is always skipped"},
    {"bf16", "bf16_master_weights_and_grads", "false", kRefused, kFp32States},
    {"bf16", "bf16_optimizer_states", "false", kRefused, kFp32States},

    {"optimizer", "legacy_fusion", "false", kNoted, "has no effect here: there is one optimizer"},
    {kParams, "foreach", "null", kNoted, "has no effect here: there is one optimizer"},
    {kParams, "fused", "null", kNoted, "has no effect here: there is one optimizer"},
    {kParams, "capturable", "false", kNoted, "has no effect here: there are no graphs"},
    {kParams, "differentiable", "false", kRefused, kOwnModel},
    {kParams, "maximize", "false", kRefused, "is refused: losses are minimised"},
    {kParams, "amsgrad", "false", kRefused, "is refused: this variant of Adam is not built"},
    {kParams, "fp32_optimizer_states", "true", kRefused, kFp32States},
    {kParams, "max_grad_norm", "0", kRefused,
     "is refused: the global norm is clipped by the key 'gradient_clipping'"},

    {kZero, "reduce_scatter", "true", kNoted, kOwnBuffers},
    {kZero, "allgather_partitions", "true", kNoted, kOwnBuffers},
    {kZero, "use_multi_rank_bucket_allreduce", "true", kNoted, kOwnBuffers},
    {kZero, "round_robin_gradients", "false", kNoted, kOwnBuffers},
    {kZero, "stage3_use_all_reduce_for_fetch_params", "false", kNoted, kOwnBuffers},
    {kZero, "use_all_reduce_for_fetch_params", "false", kNoted, kOwnBuffers},
    {kZero, "stage3_module_granularity_threshold", "0", kNoted,
     "has no effect here: the trainer chooses what is gathered together"},
    {kZero, "module_granularity_threshold", "0", kNoted,
     "has no effect here: the trainer chooses what is gathered together"},
    {kZero, "load_from_fp32_weights", "true", kNoted,
     "has no effect here: checkpoints hold fp32 master weights"},
    {kZero, "elastic_checkpoint", "false", kNoted,
     "has no effect here: checkpoints always load on another world size"},
    {kZero, "pipeline_loading_checkpoint", "false", kNoted,
     "has no effect here: checkpoints have a form of their own"},
    {kZero, "ignore_unused_parameters", "true", kNoted,
     "has no effect here: a parameter without a gradient counts as a gradient of zero"},
    {kZero, "legacy_stage1", "false", kNoted, "has no effect here: there is one stage 1"},
    {kZero, "memory_efficient_linear", "true", kNoted, "has no effect here: there are no modules"},
    {kZero, "override_module_apply", "true", kNoted, "has no effect here: there are no modules"},
    {kZero, "log_trace_cache_warnings", "false", kNoted, kNoReports},
    {kZero, "enable_sanity_checks", "false", kNoted, "has no effect here: they are always on"},
    {kZero, "cpu_offload_use_pin_memory", "false", kNoted,
     "has no effect here: use 'offload_optimizer' with 'pin_memory'"},
    {kZero, "zero_quantized_nontrainable_weights", "false", kNoted,
     "has no effect here: frozen weights keep their type and are gathered uncompressed"},
    {kZero, "offload_param", "{\"device\":\"none\"}", kRefused,
     "is refused: parameters are not offloaded; 'offload_optimizer' is built"},
    {kZero, "cpu_offload_param", "false", kRefused,
     "is refused: parameters are not offloaded; 'offload_optimizer' is built"},
    {kZero, "mics_shard_size", "-1", kRefused,
     "is refused: MiCS is not built; 'zero_hpz_partition_size' keeps gathers inside a node"},
    {kZero, "mics_hierarchical_params_gather", "false", kRefused,
     "is refused: MiCS is not built; gathers are hierarchical anyway"},
    {kZero, "zenflow", "null", kRefused, "is refused: it is another optimizer schedule"},

    {kOffload, "nvme_path", "null", kNoted, kNoNvme},
    {kOffload, "pipeline", "false", kNoted, kNoNvme},
    {kOffload, "pipeline_read", "false", kNoted, kNoNvme},
    {kOffload, "pipeline_write", "false", kNoted, kNoNvme},
    {kOffload, "super_offload", "false", kNoted, "has no effect here: the optimizer is one"},
    {kOffload, "cpuadam_cores_perc", "null", kNoted, "has no effect here: the optimizer is one"},
    {kOffload, "ratio", "1", kRefused,
     "is refused: optimizer states are offloaded as a whole or not at all"},
};

// Of these DeepSpeed's own default is null.
constexpr std::string_view kNullable[] = {
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "overlap_comm",
    "communication_data_type",
    "optimizer",
    "offload_optimizer",
    "zeropp_loco_param",
};

// The sections that have the key: of the effective configuration, which has every key of ours.
void SectionsWith(const std::string& key, const Json& section, const std::string& path,
                  std::vector<std::string>& found) {
  if (!section.is_object()) return;
  if (section.contains(key)) found.push_back(path);
  for (const auto& [name, value] : section.items()) {
    SectionsWith(key, value, path.empty() ? name : path + '.' + name, found);
  }
}

// Where the key has its place; empty when in no other section, or in several.
std::string OtherSection(std::string_view key, std::string_view section) {
  std::vector<std::string> found;
  SectionsWith(std::string(key), ToJson(ZeroConfig{}), "", found);
  if (found.size() != 1 || found[0] == section) return "";
  return found[0].empty() ? "the top of the configuration" : "'" + found[0] + "'";
}

// Of `candidates`, when it is near.
std::string Nearest(std::string_view key, const std::set<std::string, std::less<>>& candidates) {
  std::string nearest;
  int distance = static_cast<int>(key.size()) / 3 + 2;  // from here on it is something else
  for (const std::string& candidate : candidates) {
    const int candidate_distance = EditDistance(key, candidate);
    if (candidate_distance >= distance) continue;
    distance = candidate_distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace

std::span<const InertKey> InertKeys() { return kInertKeys; }

const InertKey* FindInertKey(std::string_view section, std::string_view key) {
  for (const InertKey& inert : kInertKeys) {
    if (inert.section == section && inert.key == key) return &inert;
  }
  return nullptr;
}

bool IsQuiet(const InertKey& inert, const Json& value) {
  if (value.is_null() || value == Json::parse(inert.quiet)) return true;
  if (!value.is_object()) return false;
  const auto enabled = value.find("enabled");
  return value.empty() || (enabled != value.end() && *enabled == false);
}

bool MayBeNull(std::string_view key) {
  return std::find(std::begin(kNullable), std::end(kNullable), key) != std::end(kNullable);
}

int EditDistance(std::string_view a, std::string_view b) {
  // Row i holds the distances of a's first i characters to every beginning of b; three rows do.
  std::vector<int> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string Suggestion(std::string_view section, std::string_view key,
                       const std::set<std::string, std::less<>>& known) {
  constexpr size_t kLongestKey = 64;  // beyond it nothing is near, and distances cost time
  if (key.size() > kLongestKey) return "";
  const std::string elsewhere = OtherSection(key, section);
  if (!elsewhere.empty()) return "; it belongs into " + elsewhere;
  std::set<std::string, std::less<>> candidates = known;
  for (const InertKey& inert : kInertKeys) {
    if (inert.section == section) candidates.emplace(inert.key);
  }
  const std::string nearest = Nearest(key, candidates);
  return nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
}

}  // namespace zpp
