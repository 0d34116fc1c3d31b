// One training on one rank: the loop over steps, validation and checkpoints. Collective throughout.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cli/lm/network.h"
#include "cli/lm/text.h"
#include "cli/train_args.h"
#include "cli/train_run.h"
#include "cli/train_store.h"
#include "collectives/communicator.h"
#include "zero/engine.h"

namespace zpp::cli {

// Called on every rank, whichever prints.
struct TrainEvents {
  std::function<void(const TrainRun& run)> starts;    // before anything large is allocated
  std::function<void(const TrainRun& run)> advanced;  // more steps are in run.steps
};

class TrainSession {
 public:
  // All borrowed. `config` is args.config or args.baseline; `network` has room for its micro-batch.
  struct Parts {
    const TrainArgs& args;
    const ZeroConfig& config;
    const lm::Text& text;
    lm::Network<float>& network;
    Communicator& comm;
    const TrainEvents& events;
  };
  explicit TrainSession(const Parts& parts) : p_(parts) {}

  // `run` holds what was done also when the Status is bad.
  Status Train(TrainRun* run);

 private:
  using Clock = std::chrono::steady_clock;
  // What one rank knows of a step and the others don't.
  struct Local {
    double loss_sum = 0;  // over its rows
    double time_s = 0;
    StepBytes wire;
  };

  Status Start();
  Status Resume();
  Status LoadStart();
  Status TakeStep();
  Result<double> MicroBatches(int64_t step);
  Status BetweenSteps();
  Status TellSteps();
  Status Validate();
  Status Save();
  Status Finish();
  StepBytes BytesOf(const std::vector<int64_t>& sent_bytes) const;

  Parts p_;
  TrainRun* run_ = nullptr;
  std::unique_ptr<ZeroEngine> engine_;
  std::optional<EngineStore> store_;
  std::vector<Local> untold_;  // of the last steps of run_, not yet exchanged
};

}  // namespace zpp::cli
