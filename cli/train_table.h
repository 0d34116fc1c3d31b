// What `zpp train` prints.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "cli/lm/text.h"
#include "cli/train_args.h"
#include "cli/train_run.h"
#include "topology/topology.h"

namespace zpp::cli {

// Lines that begin with '#': model, text, ranks.
std::string TrainHead(const TrainArgs& args, const lm::Text& text, const Topology& topology);
// ... compression, memory and notes of one training, and the columns' names.
std::string RunHead(const char* name, const ZeroConfig& config, const TrainRun& run);
std::string StepLine(const TrainStep& step);
// The summaries side by side.
std::string TrainTail(const TrainReport& report);

// Steps as they come: a bar that is redrawn on a terminal, a line every so often elsewhere.
class TrainProgress {
 public:
  TrainProgress(FILE* out, int64_t steps);
  // Shows run.steps from where the last call ended.
  void Show(const TrainRun& run);
  // Ends the bar's line.
  void Close();

 private:
  void DrawBar(const TrainRun& run);
  FILE* out_;
  int64_t steps_;
  bool terminal_;
  size_t shown_ = 0;
  bool open_ = false;  // a bar stands on the current line
};

}  // namespace zpp::cli
