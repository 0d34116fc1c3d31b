#include "collectives/plan/internal/routing.h"

namespace zpp::internal {
namespace {

// Ranks in the siblings before `of`, those of `without` left out.
int RanksBefore(const Domain& of, const Domain& without) {
  const bool counted = without.child_index < of.child_index;
  return of.ranks_before - (counted ? static_cast<int>(without.ranks.size()) : 0);
}

const Domain& Sibling(const Topology& topology, int level, int rank, int distance) {
  const Domain& up = topology.At(level + 1, rank);
  const int children = static_cast<int>(up.children.size());
  const int at = (topology.At(level, rank).child_index + distance + children) % children;
  return topology.Get(level, up.children[static_cast<size_t>(at)]);
}

void AppendHeld(const Topology& topology, int level, int rank, std::vector<PartId>* out) {
  if (level == topology.tiers()) {
    out->push_back(static_cast<PartId>(rank));
    return;
  }
  AppendHeld(topology, level + 1, rank, out);
  const int children = static_cast<int>(topology.At(level + 1, rank).children.size());
  for (int j = 1; j < children; ++j) {
    ForEachLandingOn(topology, level, rank, SiblingAfter(topology, level, rank, j),
                     [&](int q) { AppendHeld(topology, level + 1, q, out); });
  }
}

}  // namespace

int Landing(const Topology& topology, int level, int q, const Domain& to) {
  const int place = RanksBefore(topology.At(level, q), to) + topology.IndexIn(level, q);
  return to.ranks[static_cast<size_t>(place) % to.ranks.size()];
}

size_t FirstLandingOn(const Topology& topology, int level, int rank, const Domain& sibling) {
  const Domain& mine = topology.At(level, rank);
  const int size = static_cast<int>(mine.ranks.size());
  const int first = (topology.IndexIn(level, rank) - RanksBefore(sibling, mine)) % size;
  return static_cast<size_t>((first + size) % size);
}

const Domain& SiblingAfter(const Topology& topology, int level, int rank, int j) {
  return Sibling(topology, level, rank, j);
}
const Domain& SiblingBefore(const Topology& topology, int level, int rank, int j) {
  return Sibling(topology, level, rank, -j);
}

std::vector<PartId> HeldParts(const Topology& topology, int level, int rank) {
  std::vector<PartId> out;
  AppendHeld(topology, level, rank, &out);
  return out;
}

uint32_t HeldCount(const Topology& topology, int level, int rank) {
  if (level == topology.tiers()) return 1;
  uint32_t count = HeldCount(topology, level + 1, rank);
  const int children = static_cast<int>(topology.At(level + 1, rank).children.size());
  for (int j = 1; j < children; ++j) {
    ForEachLandingOn(topology, level, rank, SiblingAfter(topology, level, rank, j),
                     [&](int q) { count += HeldCount(topology, level + 1, q); });
  }
  return count;
}

int EntryOf(const Topology& topology, int root, int level, int id) {
  const int member = topology.Get(level, id).ranks[0];
  int holder = root;
  for (int l = topology.tiers() - 1; l >= level; --l) {
    if (topology.DomainId(l, holder) == topology.DomainId(l, member)) continue;
    holder = Landing(topology, l, holder, topology.At(l, member));
  }
  return holder;
}

}  // namespace zpp::internal
