// The one routing rule: where a part goes when it enters another domain. All-gather follows it
// outermost tier first, reduce-scatter backwards, broadcast for the leader of each domain.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan/plan.h"
#include "topology/topology.h"

namespace zpp::internal {

// The rank of `to`, a sibling of q's level-`level` domain, at which q's data enters: q's place
// among all ranks of the parent outside `to`, dealt out round robin. With domains of one size this
// is the rail; else it is balanced to +-1.
int Landing(const Topology& topology, int level, int q, const Domain& to);

// Calls visit(q) for the ranks q of `sibling` whose data lands on `rank`, ascending.
template <typename Visit>
void ForEachLandingOn(const Topology& topology, int level, int rank, const Domain& sibling,
                      Visit visit);

// The parts that `rank` holds for its level-`level` domain, its own first, then sibling by sibling,
// rotated. The list of a level is a prefix of the list of the next level inwards: one slot serves
// all tiers of a gather.
std::vector<PartId> HeldParts(const Topology& topology, int level, int rank);
uint32_t HeldCount(const Topology& topology, int level, int rank);

// The rank of domain `id` at `level` where the data of `root` enters.
int EntryOf(const Topology& topology, int root, int level, int id);

// Sibling j steps on (or back) from `domain`, rotated; j in 1 .. children-1.
const Domain& SiblingAfter(const Topology& topology, int level, int rank, int j);
const Domain& SiblingBefore(const Topology& topology, int level, int rank, int j);

// First index in sibling.ranks whose data lands on `rank`; the next follow at distance of the size
// of rank's domain.
size_t FirstLandingOn(const Topology& topology, int level, int rank, const Domain& sibling);

template <typename Visit>
void ForEachLandingOn(const Topology& topology, int level, int rank, const Domain& sibling,
                      Visit visit) {
  const size_t step = topology.At(level, rank).ranks.size();
  for (size_t i = FirstLandingOn(topology, level, rank, sibling); i < sibling.ranks.size();
       i += step) {
    visit(sibling.ranks[i]);
  }
}

}  // namespace zpp::internal
