#include "cli/topo_command.h"

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/json_file.h"
#include "common/env.h"
#include "common/strict_json.h"
#include "topology/declared.h"
#include "topology/node_identity.h"

namespace zpp::cli {
namespace {

constexpr int kDefaultRanks = 4;  // as `zpp bw` declares them
constexpr int kDefaultNodes = 2;

struct TopoFlags {
  std::optional<int> ranks, nodes;
  std::string topology, json;
};

Result<Topology> Resolve(const TopoFlags& flags) {
  if (!flags.topology.empty()) {
    if (flags.ranks || flags.nodes) {
      return InvalidArgument("--topology says everything: no --ranks or --nodes beside it");
    }
    return ReadTopologyFile(flags.topology);
  }
  if (!flags.ranks && !flags.nodes && EnvIsSet(EnvVar::kTopologyFile)) {
    return ReadTopologyFile(GetEnv(EnvVar::kTopologyFile));
  }
  const int ranks = flags.ranks.value_or(kDefaultRanks);
  if (flags.nodes && *flags.nodes < 1) {
    return InvalidArgument("--nodes must be at least 1, not " + std::to_string(*flags.nodes));
  }
  ZPP_ASSIGN_OR_RETURN(std::optional<Topology> declared,
                       DeclaredTopology(ranks, flags.nodes.value_or(0)));
  if (declared) return *std::move(declared);
  return ranks < kDefaultNodes ? Topology::Flat(ranks) : Topology::EvenNodes(ranks, kDefaultNodes);
}

std::string Hex(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

nlohmann::json TopoJson(const Topology& topology) {
  return {{"version", 1},
          {"node", ThisNode().text},
          {"fingerprint", Hex(topology.Fingerprint())},
          {"topology", nlohmann::json::parse(topology.ToJson())}};
}

void PrintTopo(const Topology& topology) {
  std::printf("this node: %s\n", Printable(ThisNode().text, 512).c_str());
  std::printf("%s", topology.ToText().c_str());
  std::printf("fingerprint: %s\n", Hex(topology.Fingerprint()).c_str());
}

int RunTopo(const TopoFlags& flags) {
  const Result<Topology> topology = Resolve(flags);
  if (!topology.ok()) {
    // A reader of standard output is promised JSON, whatever happens.
    if (flags.json == "-") {
      static_cast<void>(WriteJson("-", {{"version", 1}, {"error", topology.status().message()}}));
    }
    return Report(topology.status());
  }
  if (flags.json != "-") PrintTopo(*topology);
  return flags.json.empty() ? kExitOk : Report(WriteJson(flags.json, TopoJson(*topology)));
}

}  // namespace

void AddTopoCommand(CLI::App& app, CommandResult* chosen) {
  CLI::App* topo =
      app.add_subcommand("topo", "what names this machine's node, and the declared topology");
  auto flags = std::make_shared<TopoFlags>();
  topo->add_option("--ranks", flags->ranks, "ranks of the topology (4)");
  topo->add_option("--nodes", flags->nodes, "even nodes to declare (2)");
  topo->add_option("--topology", flags->topology, "a topology as JSON instead");
  topo->add_option("--json", flags->json, "the same as JSON to a file, - for standard output");
  topo->callback([flags, chosen] { chosen->run = [flags] { return RunTopo(*flags); }; });
}

}  // namespace zpp::cli
