#include "cli/topo_command.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/json_file.h"
#include "collectives/bootstrap/launch_env.h"
#include "common/env.h"
#include "common/strict_json.h"
#include "topology/declared.h"
#include "topology/node_identity.h"

namespace zpp::cli {
namespace {

struct TopoFlags {
  std::optional<int> ranks, nodes;
  std::string topology, json;
};

// What this process knows.
struct Known {
  std::optional<LaunchEnv> launched;
  std::optional<Topology> topology;  // absent: the ranks find out their nodes when they connect
  bool declared = true;
};

bool IsDeclaredByFile(const TopoFlags& flags) {
  return !flags.ranks && !flags.nodes && EnvIsSet(EnvVar::kTopologyFile);
}

Status CheckCounts(const TopoFlags& flags, bool launched) {
  if (flags.nodes && *flags.nodes < 1) {
    return InvalidArgument("--nodes must be at least 1, not " + std::to_string(*flags.nodes));
  }
  if (flags.nodes && !flags.ranks && !launched) {
    return InvalidArgument("--nodes " + std::to_string(*flags.nodes) +
                           " needs --ranks, or a launcher's variables");
  }
  return {};
}

// `known` has what the launcher says.
Status AddTopology(const TopoFlags& flags, Known* known) {
  ZPP_RETURN_IF_ERROR(CheckCounts(flags, known->launched.has_value()));
  // A flag that is given wins, as in `zpp bw`.
  if (flags.nodes) unsetenv(std::string(Describe(EnvVar::kTopologyFile).name).c_str());
  const int world = flags.ranks.value_or(known->launched ? known->launched->world : 1);
  ZPP_ASSIGN_OR_RETURN(known->topology, DeclaredTopology(world, flags.nodes.value_or(0)));
  if (known->topology) return {};
  const bool all_here = flags.ranks || world == 1 || known->launched->local_size == world;
  if (all_here) known->topology = Topology::Flat(world);
  known->declared = flags.ranks.has_value();
  return {};
}

Result<Known> FindOut(const TopoFlags& flags) {
  Known known;
  if (!flags.topology.empty() && (flags.ranks || flags.nodes)) {
    return InvalidArgument("--topology says everything: no --ranks or --nodes beside it");
  }
  Result<LaunchEnv> launched = ReadLaunchEnv();
  if (launched.ok()) known.launched = *std::move(launched);
  const bool half_set = !launched.ok() && launched.status().code() != StatusCode::kNotFound;
  if (!flags.topology.empty() || IsDeclaredByFile(flags)) {
    ZPP_ASSIGN_OR_RETURN(
        known.topology,
        ReadTopologyFile(flags.topology.empty() ? GetEnv(EnvVar::kTopologyFile) : flags.topology));
    return known;
  }
  if (half_set && !flags.ranks) return launched.status();
  ZPP_RETURN_IF_ERROR(AddTopology(flags, &known));
  return known;
}

std::string Hex(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

nlohmann::json LauncherJson(const std::optional<LaunchEnv>& launched) {
  if (!launched) return nullptr;
  const auto optional = [](const std::optional<int>& value) {
    return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
  };
  return {{"name", launched->launcher},
          {"rank", launched->rank},
          {"world", launched->world},
          {"local_rank", optional(launched->local_rank)},
          {"local_size", optional(launched->local_size)}};
}

nlohmann::json TopoJson(const Known& known) {
  nlohmann::json json = {{"version", 1},
                         {"node", ThisNode().text},
                         {"launcher", LauncherJson(known.launched)},
                         {"fingerprint", nullptr},
                         {"topology", nullptr}};
  if (!known.topology) return json;
  json["fingerprint"] = Hex(known.topology->Fingerprint());
  json["topology"] = nlohmann::json::parse(known.topology->ToJson());
  return json;
}

void PrintLauncher(const LaunchEnv& launched) {
  std::printf("launcher: %s, rank %d of %d", launched.launcher.c_str(), launched.rank,
              launched.world);
  if (launched.local_rank) std::printf(", local rank %d", *launched.local_rank);
  if (launched.local_size) std::printf(" of %d", *launched.local_size);
  std::printf("\n");
}

void PrintTopo(const Known& known) {
  std::printf("this node: %s\n", Printable(ThisNode().text, 512).c_str());
  if (known.launched) PrintLauncher(*known.launched);
  if (known.topology) {
    std::printf("%s", known.topology->ToText().c_str());
    std::printf("fingerprint: %s\n", Hex(known.topology->Fingerprint()).c_str());
  } else {
    std::printf("nodes: the ranks find out when they connect\n");
  }
  if (known.declared) return;
  std::printf(
      "Nothing is declared: --ranks N --nodes M or --topology FILE show what would be, "
      "ZPP_LOCAL_SIZE or ZPP_TOPOLOGY declare it.\n");
}

int RunTopo(const TopoFlags& flags) {
  const Result<Known> known = FindOut(flags);
  if (!known.ok()) {
    // A reader of standard output is promised JSON, whatever happens.
    if (flags.json == "-") {
      static_cast<void>(WriteJson("-", {{"version", 1}, {"error", known.status().message()}}));
    }
    return Report(known.status());
  }
  if (flags.json != "-") PrintTopo(*known);
  return flags.json.empty() ? kExitOk : Report(WriteJson(flags.json, TopoJson(*known)));
}

}  // namespace

void AddTopoCommand(CLI::App& app, CommandResult* chosen) {
  CLI::App* topo = app.add_subcommand(
      "topo", "what names this machine's node, what a launcher says, and the declared topology");
  auto flags = std::make_shared<TopoFlags>();
  topo->add_option("--ranks", flags->ranks, "ranks of the topology (the launcher's, or 1)");
  topo->add_option("--nodes", flags->nodes, "even nodes to declare");
  topo->add_option("--topology", flags->topology, "a topology as JSON instead");
  topo->add_option("--json", flags->json, "the same as JSON to a file, - for standard output");
  topo->callback([flags, chosen] { chosen->run = [flags] { return RunTopo(*flags); }; });
}

}  // namespace zpp::cli
