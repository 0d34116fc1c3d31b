// What `zpp train` is asked to do: the flags as typed, and what they mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/lm/shape.h"
#include "cli/rank_flags.h"
#include "common/status.h"
#include "zero/audit.h"
#include "zero/config.h"

namespace zpp::cli {

// As CLI11 leaves them; empty text and absent numbers mean "not given".
struct TrainFlags : RankFlags {
  std::string data;
  std::optional<double> inter_gbits, timeout_s;
  std::optional<int> threads;

  std::string model = "small";
  std::optional<int> context, embed, hidden, layers;
  std::string layout = "out_in";

  std::string config;
  std::optional<int> stage, accumulation;
  std::optional<int64_t> batch;
  std::string compute;

  int64_t steps = 600;
  uint64_t seed = 1;
  std::optional<double> learning_rate;
  std::optional<int64_t> warmup;
  std::string schedule = "cosine";

  std::string resume, save, export_path;
  int64_t save_every = 0;
  int64_t eval_every = 0;

  bool compare = false;
  std::string baseline;
  int64_t audit_every = 0;
  bool audit_update = false;
  std::string json;
};

// The learning rate: up in a straight line, then half a cosine down to a twentieth, or level.
struct LearningRate {
  double peak = 0;
  int64_t warmup_steps = 0;
  int64_t steps = 0;
  bool cosine = true;

  double At(int64_t step) const;  // from 0
};

struct TrainArgs : RankCounts {
  double inter_gbits = 0;
  double timeout_s = 60;
  int threads = 1;

  std::string data;  // a file or folder
  lm::LmShape shape;
  std::string model;  // its name, for people

  ZeroConfig config;
  std::optional<ZeroConfig> baseline;  // of --compare: what it is compared with
  int64_t steps = 600;
  uint64_t seed = 1;
  LearningRate rate;

  std::string resume, save, export_path;
  int64_t save_every = 0;  // 0: only at the end
  int64_t eval_every = 0;  // 0: only at the end
  AuditOptions audit;
  std::string json;
};

// One sentence about the first flag, key or file that is wrong. `launched`: what a launcher's
// variables say, null when there are none.
Result<TrainArgs> ResolveTrain(const TrainFlags& flags, const LaunchEnv* launched);

// The same on all ranks that were asked for the same training.
uint64_t DigestOf(const TrainArgs& args);

}  // namespace zpp::cli
