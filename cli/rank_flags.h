// Flags that every subcommand has which runs on several ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/bootstrap/launch_env.h"
#include "common/env.h"
#include "common/status.h"

namespace zpp::cli {

inline constexpr int kDefaultRanks = 4;
inline constexpr int kMaxLocalRanks = 256;

struct RankFlags {
  std::optional<int> ranks, nodes;
};

struct RankCounts {
  int ranks = 0;  // to start on this host; 0: those that a launcher started
  int nodes = 0;  // declared; 0: by the environment, or found out
  int world = 1;
};

// `launched`: what a launcher's variables say, null when there are none. Without --nodes, ranks of
// our own are two nodes unless the environment declares some. kInvalidArgument names the flag.
Result<RankCounts> ResolveRankFlags(const RankFlags& flags, const LaunchEnv* launched);

// What a launcher's variables say, or null where there are none. kInvalidArgument when they are
// half set, or when --ranks would start a job of its own in each rank.
Result<std::optional<LaunchEnv>> LaunchedBy(const std::optional<int>& ranks);

// A flag that is given wins: its variable is for when it is not.
struct FlagOfVariable {
  EnvVar variable;
  bool given = false;
};
void PreferFlags(const std::vector<FlagOfVariable>& flags);

// This process's arguments, without its name.
std::vector<std::string> OwnArguments();

}  // namespace zpp::cli
