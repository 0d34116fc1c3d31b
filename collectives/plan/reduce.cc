// Reduce-scatter: innermost tier first, so that what crosses a slow link has been summed before.
// The time reversal of all-gather, along the same rails.
#include "collectives/plan/internal/planners.h"
#include "collectives/plan/internal/routing.h"

namespace zpp::internal {
namespace {

// Where a mean is divided. Once per contribution, in fp32, as early as a sum is made, so that
// 16-bit partial sums stay in the mean's range. A domain of one rank has summed nothing yet: when
// all its siblings are such, the sum of this tier is the first and divides; when one of them has
// summed (and so divided) before, the lone rank divides as it encodes.
bool AnySiblingHasSummed(const Topology& topology, int tier, const Domain& up) {
  for (int32_t child : up.children) {
    if (topology.Get(tier, child).ranks.size() > 1) return true;
  }
  return false;
}

class TierReducer {
 public:
  explicit TierReducer(Builder& b) : b_(b) {
    list_ = b.List(HeldParts(b.topology, 0, b.rank));
    held_ = list_;
    operands_ = {{b.AddSlot(Place::kInput, b.job.request.user, list_), 0, list_.count}};
  }

  void Tier(int tier) {
    const Domain& up = b_.topology.At(tier + 1, b_.rank);
    if (up.children.size() > 1) {
      some_sibling_summed_ = AnySiblingHasSummed(b_.topology, tier, up);
      keep_ = HeldCount(b_.topology, tier + 1, b_.rank);
      Exchange(tier, up);
    }
    b_.EndStage();
  }

  Reduced Result() const {
    return {operands_, list_, b_.job.average && !divided_ && operands_.size() > 1};
  }

 private:
  // The encoding in which the values of `from`, a domain of this tier, travel. A lone rank's values
  // are exact in the user's type: a wider plain type would only cost bytes.
  QuantSpec TravelSpec(int tier, const Domain& from) const {
    const QuantSpec& hop = b_.job.hop[static_cast<size_t>(tier)];
    const bool lone = from.ranks.size() == 1 && !(b_.job.average && some_sibling_summed_);
    return lone && hop == QuantSpec::None() ? b_.job.request.user : hop;
  }

  // What leaves this rank, and the part of it that stays: encoded, or straight from where it lies.
  uint32_t Prepare(const QuantSpec& spec) {
    const bool first_sum = operands_.size() > 1;
    const bool divide = b_.job.average && !divided_ && (first_sum || some_sibling_summed_);
    divided_ = divided_ || divide;
    if (!first_sum && !divide && b_.SpecOf(operands_[0]) == spec) return operands_[0].slot;
    const uint32_t slot = b_.AddSlot(Place::kStage, spec, held_);
    b_.Combine({slot, 0, held_.count}, operands_, divide);
    return slot;
  }

  void Exchange(int tier, const Domain& up) {
    const Domain& mine = b_.topology.At(tier, b_.rank);
    const uint32_t slot = Prepare(TravelSpec(tier, mine));
    std::vector<Span> next(up.children.size());
    next[static_cast<size_t>(mine.child_index)] = {slot, 0, keep_};
    uint32_t at = keep_;
    for (int j = 1; j < static_cast<int>(up.children.size()); ++j) {
      const Domain& to = SiblingAfter(b_.topology, tier, b_.rank, j);
      ForEachLandingOn(b_.topology, tier, b_.rank, to, [&](int q) {
        const uint32_t count = HeldCount(b_.topology, tier + 1, q);
        b_.Send(q, {slot, at, count});
        at += count;
      });
      const Domain& from = SiblingBefore(b_.topology, tier, b_.rank, j);
      const Span span = {b_.AddSlot(Place::kStage, TravelSpec(tier, from), {list_.first, keep_}), 0,
                         keep_};
      b_.Receive(Landing(b_.topology, tier, b_.rank, from), span);
      next[static_cast<size_t>(from.child_index)] = span;
    }
    operands_ = std::move(next);
    held_.count = keep_;
  }

  Builder& b_;
  PartList list_;  // all parts
  PartList held_;  // those this rank still works for: a prefix
  std::vector<Span> operands_;
  bool divided_ = false;
  bool some_sibling_summed_ = false;  // of the tier at hand
  uint32_t keep_ = 0;                 // parts that stay after it
};

}  // namespace

Reduced ReduceTiers(Builder& b) {
  TierReducer reducer(b);
  for (int t = 0; t < b.topology.tiers(); ++t) {
    if (b.topology.MaxChildren(t + 1) > 1) reducer.Tier(t);
  }
  return reducer.Result();
}

Plan PlanReduceScatter(const Job& job, int rank) {
  Builder b(job, rank);
  b.plan.output_is_shard = true;
  const Reduced reduced = ReduceTiers(b);
  const uint32_t out = b.AddSlot(Place::kOutput, job.request.user, {reduced.held.first, 1});
  b.Combine({out, 0, 1}, reduced.operands, reduced.average);
  b.EndStage();
  return std::move(b.plan);
}

}  // namespace zpp::internal

namespace zpp {

std::vector<int> HopTiers(const Topology& topology, bool flat) {
  if (flat) return {0};
  std::vector<int> tiers;
  for (int tier = 0; tier < topology.tiers(); ++tier) {
    if (topology.MaxChildren(tier + 1) > 1) tiers.push_back(tier);
  }
  return tiers;
}

}  // namespace zpp
