// All-gather: outermost tier first, along the rails, so that a byte crosses each slow link once.
#include "collectives/plan/internal/planners.h"
#include "collectives/plan/internal/routing.h"

namespace zpp::internal {
namespace {

// Sends the parts [0, have) to every sibling domain and receives theirs behind; returns how many
// parts are held then.
uint32_t ExchangeTier(Builder& b, int tier, uint32_t slot, const Span& held) {
  const int children = static_cast<int>(b.topology.At(tier + 1, b.rank).children.size());
  uint32_t at = held.count;
  for (int j = 1; j < children; ++j) {
    const Domain& to = SiblingBefore(b.topology, tier, b.rank, j);
    b.Send(Landing(b.topology, tier, b.rank, to), held);
    ForEachLandingOn(b.topology, tier, b.rank, SiblingAfter(b.topology, tier, b.rank, j),
                     [&](int q) {
                       const uint32_t count = HeldCount(b.topology, tier + 1, q);
                       b.Receive(q, {slot, at, count});
                       at += count;
                     });
  }
  return at;
}

}  // namespace

void GatherTiers(Builder& b, const Gathering& g) {
  uint32_t have = 1, brought = 0;  // parts held; those of them that lie in `out`
  uint32_t source = g.own;
  auto bring = [&] {
    const uint32_t count = have - brought;
    if (source != g.out && count > 0) {
      b.Combine({g.out, brought, count}, {{source, brought, count}});
    }
    brought = have;
  };
  bool exchanged = false;
  for (int t = b.topology.tiers() - 1; t >= 0; --t) {
    if (b.topology.MaxChildren(t + 1) == 1) continue;  // the same on every rank
    const uint32_t more = ExchangeTier(b, t, g.slot, {source, 0, have});
    b.StartExchange();
    bring();
    b.EndStage();
    have = more;
    source = g.slot;
    exchanged = true;
  }
  if (exchanged && g.slot == g.out) return;
  bring();
  b.EndStage();
}

Plan PlanAllGather(const Job& job, int rank) {
  Builder b(job, rank);
  b.plan.input_is_shard = true;
  const PartList list = b.List(HeldParts(job.route, 0, rank));
  const uint32_t in = b.AddSlot(Place::kInput, job.request.user, {list.first, 1});
  const uint32_t out = b.AddSlot(Place::kOutput, job.request.user, list);
  if (job.gather == job.request.user) {
    GatherTiers(b, {.own = in, .slot = out, .out = out});
  } else {
    // The owner decodes its own bytes too: every rank ends with the same values.
    const uint32_t slot = b.AddSlot(Place::kStage, job.gather, list);
    b.Combine({slot, 0, 1}, {{in, 0, 1}});
    GatherTiers(b, {.own = slot, .slot = slot, .out = out});
  }
  return std::move(b.plan);
}

}  // namespace zpp::internal
