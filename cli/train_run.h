// What a training came to: the figures that tables and JSON are made of.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "zero/memory_estimate.h"

namespace zpp::cli {

// Tier 0, inside a node, and every tier above.
struct StepBytes {
  int64_t intra = 0;
  int64_t inter = 0;
  bool operator==(const StepBytes&) const = default;
};

// Over all ranks: the loss is the mean over the global batch, in nats, times are the slowest
// rank's, bytes are summed.
struct TrainStep {
  int64_t step = 0;  // from 1
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;
  double clip_coefficient = 1;
  double loss_scale = 1;
  double time_ms = 0;
  StepBytes wire;
  double rel_error = 0;  // of what was encoded of the gradients
  double weight_rel_error = 0;
  bool skipped = false;
  bool exact = false;
};

struct Validation {
  int64_t step = 0;
  double loss = 0;  // with the fp32 master weights, in nats per byte
};

// Of the steps of this process: a resumed training counts its own only.
struct TrainSummary {
  double train_loss = 0;  // mean of the last steps
  double val_loss = 0;
  double tokens_per_s = 0;
  double time_ms = 0;                     // median
  double wire_intra = 0, wire_inter = 0;  // bytes per step, mean
  int64_t peak_rss_bytes = 0;             // of the largest rank
};

struct TrainRun {
  nlohmann::json config;  // effective
  std::string compression;
  std::vector<std::string> notes;  // a sentence each
  int64_t first_step = 0;          // 0, or where it resumed
  std::vector<TrainStep> steps;
  std::vector<Validation> validations;
  std::optional<TrainSummary> summary;  // absent when the run failed
  MemoryEstimate estimate;
  std::optional<MemoryEstimate> held;
  nlohmann::json audit;
  std::string saved;  // the last folder that was saved to
};

struct TrainReport {
  int ranks = 0, nodes = 0;
  std::string model;
  int64_t parameters = 0;
  std::string data;
  std::optional<TrainRun> baseline;  // of --compare
  TrainRun run;
  std::string error;  // one sentence when the run failed
};

// Of two whole trainings.
struct TrainComparison {
  double speedup = 0;     // of the median step
  double wire_ratio = 0;  // bytes across nodes, compressed over baseline; of all without nodes
  double val_loss_percent = 0;  // above the baseline's
};
std::optional<TrainComparison> Compare(const TrainReport& report);

// Mean loss of the last steps, at most 20, median time and so on; `batch` contexts a step.
TrainSummary Summarize(const std::vector<TrainStep>& steps, int64_t batch);

}  // namespace zpp::cli
