#include "cli/rank_flags.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace zpp::cli {
namespace {

int NodesFor(const RankFlags& flags, int ranks) {
  if (flags.nodes) return *flags.nodes;
  const bool declared = EnvIsSet(EnvVar::kLocalSize) || EnvIsSet(EnvVar::kTopologyFile);
  return declared ? 0 : std::min(2, ranks);
}

}  // namespace

Result<RankCounts> ResolveRankFlags(const RankFlags& flags, const LaunchEnv* launched) {
  RankCounts counts;
  if (flags.ranks || launched == nullptr) counts.ranks = flags.ranks.value_or(kDefaultRanks);
  if (flags.ranks && (*flags.ranks < 1 || *flags.ranks > kMaxLocalRanks)) {
    return InvalidArgument("--ranks must be from 1 to " + std::to_string(kMaxLocalRanks) +
                           ", not " + std::to_string(*flags.ranks));
  }
  counts.world = counts.ranks > 0 ? counts.ranks : launched->world;
  if (flags.nodes && *flags.nodes < 1) {
    return InvalidArgument("--nodes must be at least 1, not " + std::to_string(*flags.nodes));
  }
  if (flags.nodes && *flags.nodes > counts.world) {
    return InvalidArgument("--nodes " + std::to_string(*flags.nodes) +
                           " leaves a node empty: there are only " + std::to_string(counts.world) +
                           " ranks");
  }
  counts.nodes = counts.ranks > 0 ? NodesFor(flags, counts.ranks) : flags.nodes.value_or(0);
  return counts;
}

Result<std::optional<LaunchEnv>> LaunchedBy(const std::optional<int>& ranks) {
  const Result<LaunchEnv> launched = ReadLaunchEnv();
  if (!launched.ok()) {
    const bool alone = launched.status().code() == StatusCode::kNotFound;
    if (alone || ranks) return std::optional<LaunchEnv>();
    return launched.status();
  }
  // Each of the launcher's ranks would start a job of its own, and all would print.
  if (launched->world > 1 && ranks) {
    return InvalidArgument("--ranks starts ranks of its own, but this is already rank " +
                           std::to_string(launched->rank) + " of " +
                           std::to_string(launched->world) + " (" + launched->launcher +
                           "): leave --ranks out");
  }
  return std::optional<LaunchEnv>(*launched);
}

void PreferFlags(const std::vector<FlagOfVariable>& flags) {
  for (const FlagOfVariable& flag : flags) {
    if (flag.given) unsetenv(std::string(Describe(flag.variable).name).c_str());
  }
}

std::vector<std::string> OwnArguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> args;
  for (std::string arg; std::getline(file, arg, '\0');) args.push_back(arg);
  if (!args.empty()) args.erase(args.begin());
  return args;
}

}  // namespace zpp::cli
