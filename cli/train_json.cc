#include "cli/train_json.h"

#include "cli/version.h"

namespace zpp::cli {
namespace {

using nlohmann::json;

json StepJson(const TrainStep& step) {
  return {{"step", step.step},
          {"loss", step.loss},
          {"learning_rate", step.learning_rate},
          {"grad_norm", step.grad_norm},
          {"clip_coefficient", step.clip_coefficient},
          {"loss_scale", step.loss_scale},
          {"time_ms", step.time_ms},
          {"wire_bytes", {{"intra", step.wire.intra}, {"inter", step.wire.inter}}},
          {"rel_error", step.rel_error},
          {"weight_rel_error", step.weight_rel_error},
          {"skipped", step.skipped},
          {"exact", step.exact}};
}

json SummaryJson(const TrainSummary& summary) {
  return {{"train_loss", summary.train_loss},
          {"val_loss", summary.val_loss},
          {"tokens_per_s", summary.tokens_per_s},
          {"time_ms", summary.time_ms},
          {"wire_bytes_per_step", {{"intra", summary.wire_intra}, {"inter", summary.wire_inter}}},
          {"peak_rss_bytes", summary.peak_rss_bytes}};
}

json MemoryJson(const MemoryEstimate& memory) {
  return {{"weights_bytes", memory.weights_bytes},     {"master_bytes", memory.master_bytes},
          {"moments_bytes", memory.moments_bytes},     {"gradients_bytes", memory.gradients_bytes},
          {"gathered_bytes", memory.gathered_bytes},   {"secondary_bytes", memory.secondary_bytes},
          {"residuals_bytes", memory.residuals_bytes}, {"staging_bytes", memory.staging_bytes},
          {"total_bytes", memory.total_bytes()},       {"offloaded", memory.offloaded}};
}

json RunJson(const TrainRun& run) {
  json steps = json::array();
  for (const TrainStep& step : run.steps) steps.push_back(StepJson(step));
  json validation = json::array();
  for (const Validation& one : run.validations) {
    validation.push_back({{"step", one.step}, {"val_loss", one.loss}});
  }
  return {{"config", run.config},
          {"compression", run.compression},
          {"notes", run.notes},
          {"first_step", run.first_step},
          {"steps", steps},
          {"validation", validation},
          {"final", run.summary ? SummaryJson(*run.summary) : json(nullptr)},
          {"memory",
           {{"estimate", MemoryJson(run.estimate)},
            {"held", run.held ? MemoryJson(*run.held) : json(nullptr)}}},
          {"audit", run.audit},
          {"saved", run.saved.empty() ? json(nullptr) : json(run.saved)}};
}

}  // namespace

json ToJson(const TrainReport& report) {
  json out = {{"version", kVersion},   {"ranks", report.ranks}, {"nodes", report.nodes},
              {"model", report.model}, {"data", report.data},   {"parameters", report.parameters}};
  if (report.baseline) {
    out["baseline"] = RunJson(*report.baseline);
    out["compressed"] = RunJson(report.run);
    const std::optional<TrainComparison> compared = Compare(report);
    out["speedup"] = compared ? json(compared->speedup) : json(nullptr);
    out["wire_ratio"] = compared ? json(compared->wire_ratio) : json(nullptr);
    out["val_loss_percent"] = compared ? json(compared->val_loss_percent) : json(nullptr);
  } else {
    out.update(RunJson(report.run));
  }
  if (!report.error.empty()) out["error"] = report.error;
  return out;
}

json TrainErrorJson(const std::string& error) {
  return {{"version", kVersion},
          {"steps", json::array()},
          {"final", nullptr},
          {"config", nullptr},
          {"error", error}};
}

}  // namespace zpp::cli
