// Broadcast: a binomial tree per tier, outermost first, over the leaders of the domains.
#include "collectives/plan/internal/planners.h"
#include "collectives/plan/internal/routing.h"

namespace zpp::internal {
namespace {

// One tier of the tree, seen from one rank: the children of a domain, counted from the one that has
// the data.
class TierTree {
 public:
  TierTree(const Topology& topology, int root, int tier, int rank)
      : topology_(topology), root_(root), tier_(tier), up_(topology.At(tier + 1, rank)) {
    const int source = EntryOf(topology, root, tier + 1, topology.DomainId(tier + 1, rank));
    zero_ = topology.At(tier, source).child_index;
    const int child = topology.At(tier, rank).child_index;
    place_ = (child - zero_ + size()) % size();
    leads_ = EntryOf(topology, root, tier, topology.DomainId(tier, rank)) == rank;
  }
  int size() const { return static_cast<int>(up_.children.size()); }
  int place() const { return place_; }
  bool leads() const { return leads_; }
  int Leader(int place) const {
    const size_t child = static_cast<size_t>((place + zero_) % size());
    return EntryOf(topology_, root_, tier_, up_.children[child]);
  }

 private:
  const Topology& topology_;
  int root_, tier_;
  const Domain& up_;
  int zero_ = 0, place_ = 0;
  bool leads_ = false;
};

void BroadcastTier(Builder& b, int tier, const Span& data) {
  const TierTree tree(b.topology, b.job.request.root, tier, b.rank);
  for (int step = 1; step < b.topology.MaxChildren(tier + 1); step *= 2) {
    const int place = tree.place();
    if (tree.leads() && place < step && place + step < tree.size()) {
      b.Send(tree.Leader(place + step), data);
    }
    if (tree.leads() && place >= step && place < 2 * step) {
      b.Receive(tree.Leader(place - step), data);
    }
    b.EndStage();
  }
}

}  // namespace

Plan PlanBroadcast(const Job& job, int rank) {
  Builder b(job, rank);
  const PartList list = b.List({0});
  const QuantSpec& user = job.request.user;
  const bool plain = job.gather == user;
  const uint32_t out = b.AddSlot(Place::kOutput, user, list);
  const Span data = {plain ? out : b.AddSlot(Place::kStage, job.gather, list), 0, 1};
  if (rank == job.request.root) b.Combine(data, {{b.AddSlot(Place::kInput, user, list), 0, 1}});
  for (int t = job.route.tiers() - 1; t >= 0; --t) BroadcastTier(b, t, data);
  if (!plain) b.Combine({out, 0, 1}, {data});
  if (!plain || job.world() == 1) b.EndStage();
  return std::move(b.plan);
}

}  // namespace zpp::internal
