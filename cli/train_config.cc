#include "cli/train_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace zpp::cli {
namespace {

constexpr int64_t kDefaultBatch = 512;

std::string WeightText(const ZeroConfig& config) {
  if (!config.quantized_weights || config.stage == 0) return "weights plain";
  if (config.stage < 3) return "weight differences " + ToString(config.zero_pp.WeightDifferences());
  std::string text = "weight gathers " + ToString(config.zero_pp.WeightGathers());
  if (config.hpz_partition_size > 1) {
    text += " (hpZ over " + std::to_string(config.hpz_partition_size) + " ranks)";
  }
  return text;
}

std::string GradientText(const ZeroConfig& config) {
  if (!config.quantized_gradients) return "gradients plain";
  return "gradients " + ToString(config.zero_pp.IntraGradients()) + " inside, " +
         ToString(config.zero_pp.InterGradients()) + " across, feedback " +
         std::string(ErrorFeedbackName(config.zero_pp.error_feedback));
}

}  // namespace

std::string DefaultConfigText(const DefaultChoices& choices, int world) {
  const int64_t unit = int64_t{world} * choices.accumulation;
  const int64_t batch =
      choices.batch > 0 ? choices.batch : std::max<int64_t>(1, kDefaultBatch / unit) * unit;
  nlohmann::ordered_json config = {{"train_batch_size", batch},
                                   {"gradient_accumulation_steps", choices.accumulation},
                                   {"gradient_clipping", 1.0},
                                   {"optimizer",
                                    {{"type", "AdamW"},
                                     {"params",
                                      {{"lr", choices.learning_rate},
                                       {"betas", {0.9, 0.95}},
                                       {"eps", 1e-8},
                                       {"weight_decay", 0.01}}}}},
                                   {"zero_optimization", {{"stage", choices.stage}}},
                                   {"zero_pp", {{"enabled", choices.stage > 0}}}};
  if (choices.compute != "fp32") config[choices.compute] = {{"enabled", true}};
  return config.dump(2);
}

ZeroConfig Uncompressed(ZeroConfig config) {
  config.quantized_weights = false;
  config.quantized_gradients = false;
  config.hpz_partition_size = 1;
  config.loco.reset();
  config.zero_pp = ZeroPpConfig();
  return config;
}

bool Compresses(const ZeroConfig& config) {
  return config.quantized_weights || config.quantized_gradients;
}

double DefaultLearningRate(const lm::LmShape& shape) {
  constexpr double kRate = 3e-3, kWidth = 512;
  return kRate * std::min(1.0, kWidth / shape.hidden);
}

double PeakLearningRate(const ZeroConfig& config) {
  switch (config.optimizer) {
    case OptimizerType::kAdam:
    case OptimizerType::kAdamW:
      return config.adam.lr;
    case OptimizerType::kSgd:
      return config.sgd.lr;
  }
  return 0;
}

std::string CompressionText(const ZeroConfig& config) {
  if (!Compresses(config)) return "none";
  std::string text = WeightText(config) + "; " + GradientText(config);
  if (config.zero_pp.quant_period > 0) {
    text += "; exact every " + std::to_string(config.zero_pp.quant_period) + " steps";
  }
  return text;
}

MemoryEstimate EstimateFor(const ZeroConfig& config, const lm::LmShape& shape,
                           const Topology& topology) {
  ModelSize size;
  std::vector<int64_t> unit_elems;
  std::vector<int64_t> small;
  for (const ParamSpec& param : lm::ParametersOf(shape)) {
    const int64_t elems = lm::ElemsOf(param);
    size.elems += elems;
    if (param.shape.size() > 1 || config.zero_pp.compress_1d) size.compressed_elems += elems;
    if (elems <= config.persistence_threshold_elems) small.push_back(elems);
    unit_elems.resize(std::max(unit_elems.size(), static_cast<size_t>(param.unit) + 1));
    unit_elems[static_cast<size_t>(param.unit)] += elems;
  }
  std::sort(small.begin(), small.end());
  for (const int64_t elems : small) {
    if (size.persistent_elems + elems > config.model_persistence_elems) break;
    size.persistent_elems += elems;
  }
  size.largest_unit_elems = *std::max_element(unit_elems.begin(), unit_elems.end());
  return EstimateMemory(
      config, size,
      {.world = topology.world(), .node_ranks = static_cast<int>(topology.NodeGroup(0).size())});
}

}  // namespace zpp::cli
