#include "topology/topology.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace zpp {
namespace {

std::vector<int> Iota(int n) {
  std::vector<int> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

Status CheckWorld(int64_t world) {
  if (world >= 1 && world <= Topology::kMaxWorld) return {};
  return InvalidArgument("a topology has 1 to " + std::to_string(Topology::kMaxWorld) +
                         " ranks, not " + std::to_string(world));
}

}  // namespace

void Topology::AddLevel(std::span<const int> label) {
  std::map<int, int32_t> id_of_label;
  std::vector<Domain> domains;
  std::vector<int32_t> of, index;
  of.reserve(label.size());
  index.reserve(label.size());
  for (size_t rank = 0; rank < label.size(); ++rank) {
    const auto [it, fresh] =
        id_of_label.try_emplace(label[rank], static_cast<int32_t>(domains.size()));
    if (fresh) domains.emplace_back();
    Domain& domain = domains[it->second];
    of.push_back(it->second);
    index.push_back(static_cast<int32_t>(domain.ranks.size()));
    domain.ranks.push_back(static_cast<int32_t>(rank));
  }
  levels_.push_back(std::move(domains));
  of_.push_back(std::move(of));
  index_.push_back(std::move(index));
}

Status Topology::CheckNested(int level) const {
  for (const Domain& domain : levels_[level]) {
    const int32_t parent = of_[level + 1][domain.ranks[0]];
    for (const int32_t rank : domain.ranks) {
      if (of_[level + 1][rank] == parent) continue;
      return InvalidArgument("ranks " + std::to_string(domain.ranks[0]) + " and " +
                             std::to_string(rank) + " share a domain of tier " +
                             std::to_string(level - 1) + " but not of tier " +
                             std::to_string(level));
    }
  }
  return {};
}

void Topology::JoinLevels(int level) {
  for (int32_t id = 0; id < NumDomains(level); ++id) {
    Domain& domain = levels_[level][id];
    domain.parent = of_[level + 1][domain.ranks[0]];
    Domain& up = levels_[level + 1][domain.parent];
    domain.child_index = static_cast<int32_t>(up.children.size());
    if (!up.children.empty()) {
      const Domain& before = levels_[level][up.children.back()];
      domain.ranks_before = before.ranks_before + static_cast<int32_t>(before.ranks.size());
    }
    up.children.push_back(id);
    max_children_[level + 1] =
        std::max(max_children_[level + 1], static_cast<int32_t>(up.children.size()));
  }
}

Topology Topology::Flat(int world) {
  Result<Topology> flat = FromLabels(world, {});
  return flat.ok() ? std::move(flat).value() : Topology();
}

Result<Topology> Topology::FromLabels(int world, std::span<const std::vector<int>> labels) {
  ZPP_RETURN_IF_ERROR(CheckWorld(world));
  if (labels.size() >= kMaxTiers) {
    return InvalidArgument("a topology has 1 to " + std::to_string(kMaxTiers) + " tiers, not " +
                           std::to_string(labels.size() + 1));
  }
  Topology topology;
  topology.world_ = world;
  topology.AddLevel(Iota(world));
  for (size_t tier = 0; tier < labels.size(); ++tier) {
    if (labels[tier].size() != static_cast<size_t>(world)) {
      return InvalidArgument("tier " + std::to_string(tier) + " labels " +
                             std::to_string(labels[tier].size()) + " ranks of " +
                             std::to_string(world));
    }
    topology.AddLevel(labels[tier]);
  }
  topology.AddLevel(std::vector<int>(static_cast<size_t>(world), 0));
  topology.max_children_.assign(topology.levels_.size(), 0);
  for (int level = 0; level < topology.tiers(); ++level) {
    ZPP_RETURN_IF_ERROR(topology.CheckNested(level));
    topology.JoinLevels(level);
  }
  topology.links_.resize(static_cast<size_t>(topology.tiers()));
  return topology;
}

Result<Topology> Topology::Nodes(std::span<const int> sizes) {
  int64_t world = 0;
  for (size_t node = 0; node < sizes.size(); ++node) {
    if (sizes[node] < 1) {
      return InvalidArgument("node " + std::to_string(node) + " has " +
                             std::to_string(sizes[node]) + " ranks; a node has 1 or more");
    }
    world += sizes[node];
  }
  ZPP_RETURN_IF_ERROR(CheckWorld(world));
  std::vector<int> label;
  label.reserve(static_cast<size_t>(world));
  for (size_t node = 0; node < sizes.size(); ++node) {
    label.insert(label.end(), static_cast<size_t>(sizes[node]), static_cast<int>(node));
  }
  return FromLabels(static_cast<int>(world), {&label, 1});
}

Result<Topology> Topology::EvenNodes(int world, int nodes) {
  ZPP_RETURN_IF_ERROR(CheckWorld(world));
  if (nodes < 1 || nodes > world) {
    return InvalidArgument(std::to_string(world) + " ranks make 1 to " + std::to_string(world) +
                           " nodes, not " + std::to_string(nodes));
  }
  std::vector<int> sizes(static_cast<size_t>(nodes), world / nodes);
  for (int node = 0; node < world % nodes; ++node) ++sizes[node];
  return Nodes(sizes);
}

Result<Topology> Topology::Regular(std::span<const int> fanout) {
  if (fanout.empty() || fanout.size() > kMaxTiers) {
    return InvalidArgument("a topology has 1 to " + std::to_string(kMaxTiers) + " tiers, not " +
                           std::to_string(fanout.size()));
  }
  int64_t world = 1;
  std::vector<int64_t> domain_ranks;
  for (const int n : fanout) {
    if (n < 1) return InvalidArgument("a tier joins 1 or more domains, not " + std::to_string(n));
    world *= n;
    ZPP_RETURN_IF_ERROR(CheckWorld(world));
    domain_ranks.push_back(world);
  }
  domain_ranks.pop_back();
  std::vector<std::vector<int>> labels;
  for (const int64_t ranks : domain_ranks) {
    std::vector<int> label = Iota(static_cast<int>(world));
    for (int& rank : label) rank = static_cast<int>(rank / ranks);
    labels.push_back(std::move(label));
  }
  return FromLabels(static_cast<int>(world), labels);
}

int Topology::TierOf(int a, int b) const {
  int level = 0;
  while (of_[level][a] != of_[level][b]) ++level;
  return level - 1;
}

// Level 1 is the node, and the world when the topology is flat.
std::span<const int32_t> Topology::NodeGroup(int rank) const { return At(1, rank).ranks; }

std::vector<int32_t> Topology::RailGroup(int rank) const {
  const int node = NodeOf(rank);
  const auto index = static_cast<size_t>(IndexIn(1, rank));
  std::vector<int32_t> rail;
  for (int n = 0; n < num_nodes(); ++n) {
    const std::vector<int32_t>& ranks = Get(1, n).ranks;
    rail.push_back(n == node ? rank : ranks[std::min(index, ranks.size() - 1)]);
  }
  return rail;
}

Status Topology::SetLinks(std::span<const LinkModel> links) {
  if (links.size() != links_.size()) {
    return InvalidArgument(std::to_string(links.size()) + " link models for " +
                           std::to_string(links_.size()) + " tiers");
  }
  for (size_t tier = 0; tier < links.size(); ++tier) {
    const LinkModel& link = links[tier];
    if (!std::isfinite(link.latency_s) || link.latency_s < 0 || !std::isfinite(link.bytes_per_s) ||
        link.bytes_per_s < 0) {
      return InvalidArgument(
          "the link of tier " + std::to_string(tier) +
          " needs a latency_s and a bytes_per_s that are finite and not negative");
    }
  }
  for (size_t tier = 0; tier < links.size(); ++tier) {
    // + 0.0 turns -0.0 into 0.0: equal links have equal bits, hence equal fingerprints.
    links_[tier] = {links[tier].latency_s + 0.0, links[tier].bytes_per_s + 0.0};
  }
  return {};
}

Result<Topology> Topology::Subset(std::span<const int32_t> ranks) const {
  std::vector<bool> taken(static_cast<size_t>(world_));
  for (const int32_t rank : ranks) {
    if (rank < 0 || rank >= world_ || taken[static_cast<size_t>(rank)]) {
      return InvalidArgument("a group of ranks: rank " + std::to_string(rank) +
                             (rank < 0 || rank >= world_ ? " is none of " + std::to_string(world_)
                                                         : std::string(" comes twice")));
    }
    taken[static_cast<size_t>(rank)] = true;
  }
  std::vector<std::vector<int>> labels;
  for (int level = 1; level < tiers(); ++level) {
    std::vector<int>& label = labels.emplace_back();
    for (const int32_t rank : ranks) label.push_back(DomainId(level, rank));
  }
  ZPP_ASSIGN_OR_RETURN(Topology subset, FromLabels(static_cast<int>(ranks.size()), labels));
  subset.links_ = links_;
  return subset;
}

Topology Topology::Flattened() const {
  Topology flat = Flat(world_);
  if (!links_.empty()) flat.links_[0] = links_.back();
  return flat;
}

}  // namespace zpp
