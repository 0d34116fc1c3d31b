#include "cli/train_run.h"

#include <algorithm>

#include "cli/median.h"

namespace zpp::cli {
namespace {

constexpr size_t kLastSteps = 20;

}  // namespace

std::optional<TrainComparison> Compare(const TrainReport& report) {
  if (!report.baseline || !report.baseline->summary || !report.run.summary) return std::nullopt;
  const TrainSummary& before = *report.baseline->summary;
  const TrainSummary& after = *report.run.summary;
  const bool across = before.wire_inter > 0;
  const double sent_before = across ? before.wire_inter : before.wire_intra;
  const double sent_after = across ? after.wire_inter : after.wire_intra;
  return TrainComparison{
      .speedup = after.time_ms > 0 ? before.time_ms / after.time_ms : 0,
      .wire_ratio = sent_before > 0 ? sent_after / sent_before : 1,
      .val_loss_percent = 100 * (after.val_loss - before.val_loss) / before.val_loss};
}

TrainSummary Summarize(const std::vector<TrainStep>& steps, int64_t batch) {
  TrainSummary summary;
  if (steps.empty()) return summary;
  std::vector<double> times;
  double sum_ms = 0;
  for (const TrainStep& step : steps) {
    times.push_back(step.time_ms);
    sum_ms += step.time_ms;
    summary.wire_intra += static_cast<double>(step.wire.intra);
    summary.wire_inter += static_cast<double>(step.wire.inter);
  }
  const auto count = static_cast<double>(steps.size());
  const size_t last = std::min(steps.size(), kLastSteps);
  for (size_t i = steps.size() - last; i < steps.size(); ++i) summary.train_loss += steps[i].loss;
  summary.train_loss /= static_cast<double>(last);
  summary.wire_intra /= count;
  summary.wire_inter /= count;
  summary.time_ms = Median(std::move(times));
  if (sum_ms > 0) summary.tokens_per_s = static_cast<double>(batch) * count / sum_ms * 1e3;
  return summary;
}

}  // namespace zpp::cli
