// Which ranks are near each other, and how fast the links between them are. A value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace zpp {

// One direction of one port. Tier 0 joins ranks inside a node, tier 1 joins nodes, and so on
// outwards.
struct LinkModel {
  double latency_s = 0;
  double bytes_per_s = 0;  // 0: not known
  bool operator==(const LinkModel&) const = default;
};

// Level 0 domains are single ranks, level tiers() is the world. Tier t exchanges among the level-t
// domains of one level-(t+1) domain. `ranks` ascend; domains of a level are numbered by their
// lowest rank.
struct Domain {
  std::vector<int32_t> ranks;
  std::vector<int32_t> children;  // ids one level below, in order of their lowest rank
  int32_t parent = -1;            // id one level above
  int32_t child_index = 0;        // this domain's place among its parent's children
  int32_t ranks_before = 0;       // ranks in the siblings before this one
  bool operator==(const Domain&) const = default;
};

class Topology {
 public:
  static constexpr int kMaxTiers = 4;
  static constexpr int kMaxWorld = 1 << 16;  // pairs of ranks fit 32 bits

  Topology() = default;  // world 0: only to be assigned to

  // One node of `world` ranks (one tier). World 0 outside 1..kMaxWorld.
  static Topology Flat(int world);
  // `sizes[n]` consecutive ranks in node n; two tiers. An empty node is an error.
  static Result<Topology> Nodes(std::span<const int> sizes);
  // `nodes` nodes whose sizes differ by at most one; an error when a node would be empty.
  static Result<Topology> EvenNodes(int world, int nodes);
  // labels[l][r]: name of the level-(l+1) domain rank r lies in, innermost first; the world is
  // added on top. 0 to 3 lists. A domain must lie in one parent only.
  static Result<Topology> FromLabels(int world, std::span<const std::vector<int>> labels);
  // {8, 4}: nodes of 8 ranks, 4 nodes. Innermost first, 1 to 4 numbers.
  static Result<Topology> Regular(std::span<const int> fanout);

  int world() const { return world_; }
  int tiers() const { return static_cast<int>(levels_.size()) - 1; }
  int NumDomains(int level) const { return static_cast<int>(levels_[level].size()); }
  const Domain& Get(int level, int id) const { return levels_[level][id]; }
  const Domain& At(int level, int rank) const { return levels_[level][of_[level][rank]]; }
  int DomainId(int level, int rank) const { return of_[level][rank]; }
  int IndexIn(int level, int rank) const { return index_[level][rank]; }
  int MaxChildren(int level) const { return max_children_[level]; }
  // The tier that joins a and b; a == b is an error of the caller.
  int TierOf(int a, int b) const;

  // Nodes are level 1 when there are two tiers or more; a flat topology is one node.
  int num_nodes() const { return tiers() >= 2 ? NumDomains(1) : 1; }
  int NodeOf(int rank) const { return tiers() >= 2 ? DomainId(1, rank) : 0; }
  // Ranks of `rank`'s node, ascending.
  std::span<const int32_t> NodeGroup(int rank) const;
  // One rank of every node: those with `rank`'s index in their node (the last one where a node is
  // smaller), in node order; `rank` itself for its own node.
  std::vector<int32_t> RailGroup(int rank) const;

  const std::vector<LinkModel>& links() const { return links_; }  // one per tier
  Status SetLinks(std::span<const LinkModel> links);
  // The topology of a group of ranks, which are numbered anew in the order given: every tier stays,
  // with its domains cut down to the group and its link. kInvalidArgument for a rank that does not
  // exist or comes twice, and for no ranks at all.
  Result<Topology> Subset(std::span<const int32_t> ranks) const;
  // A copy with all ranks in one domain, outermost link kept: what a flat collective sees.
  Topology Flattened() const;

  // {"version":1,"world":4,"tiers":[
  //    {"name":"node","domains":[[0,1],[2,3]],"latency_s":1e-6,"bytes_per_s":1e10},
  //    {"name":"world","latency_s":5e-5,"bytes_per_s":1.25e8}]}
  // Innermost tier first. The outermost has one domain, the world, and may leave it out; `name` is
  // for people; latency_s and bytes_per_s default to 0. At most 16 MiB.
  std::string ToJson() const;
  // kInvalidArgument or kDataLoss with one sentence: bad JSON, unknown key, a missing rank, a rank
  // twice, ...
  static Result<Topology> FromJson(std::string_view text);
  // A drawing for people, a line per domain.
  std::string ToText() const;
  // Equal topologies have equal fingerprints on every machine: compared in the handshake.
  uint64_t Fingerprint() const;
  // One line that tells layouts apart: "4 ranks in 2 nodes, fingerprint 1f0c...".
  std::string Summary() const;

  bool operator==(const Topology&) const = default;

 private:
  // label[r]: name of the domain rank r lies in.
  void AddLevel(std::span<const int> label);
  // No domain of `level` straddles domains of the next one.
  Status CheckNested(int level) const;
  // Fills in parents, children and places.
  void JoinLevels(int level);

  int world_ = 0;
  std::vector<std::vector<Domain>> levels_;
  std::vector<std::vector<int32_t>> of_, index_;
  std::vector<int32_t> max_children_;
  std::vector<LinkModel> links_;
};

// FromJson of a file; kNotFound when it cannot be opened.
Result<Topology> ReadTopologyFile(const std::string& path);

}  // namespace zpp
