#include "collectives/feedback.h"

#include <algorithm>
#include <utility>

#include "common/hash.h"

namespace zpp {
namespace {

// Any encoding: which parts a rank encodes at which hop does not depend on it.
Result<Plan> CodedPlan(const FeedbackShape& shape, bool gather) {
  PlanRequest request;
  request.topology = shape.topology;
  request.kind = gather ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter;
  request.hop.assign(static_cast<size_t>(shape.topology->tiers()), QuantSpec::Int8());
  request.gather = QuantSpec::Int8();
  request.op = shape.op;
  request.flat = shape.flat;
  return MakePlan(request, shape.rank);
}

bool Before(const ReduceFeedback::Piece& piece, const std::pair<uint32_t, PartId>& at) {
  return std::pair(static_cast<uint32_t>(piece.tier), piece.part) < at;
}

// kGather, as unsigned, comes last.
std::pair<uint32_t, PartId> PlaceOf(int tier, PartId part) {
  return {static_cast<uint32_t>(tier), part};
}

}  // namespace

ReduceFeedback::Piece* ReduceFeedback::Find(int tier, PartId part) {
  const auto at = PlaceOf(tier, part);
  const auto it = std::lower_bound(pieces_.begin(), pieces_.end(), at, Before);
  return it != pieces_.end() && it->tier == tier && it->part == part ? &*it : nullptr;
}

Status ReduceFeedback::Scale(float factor) {
  for (Piece& piece : pieces_) ZPP_RETURN_IF_ERROR(piece.residual.Scale(factor));
  return {};
}

void ReduceFeedback::Drop() {
  for (Piece& piece : pieces_) piece.residual.Drop();
}

int64_t ReduceFeedback::bytes() const {
  int64_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += piece.residual.bytes();
  return bytes;
}

uint64_t FeedbackShape::Digest() const {
  Hash hash;
  hash.Add(topology->Fingerprint());
  hash.Add(static_cast<uint64_t>(rank));
  hash.Add(static_cast<uint64_t>(op));
  hash.Add(flat ? 1 : 0);
  for (int64_t p = 0; p < parts->parts(); ++p) {
    hash.Add(static_cast<uint64_t>(parts->Elems(static_cast<PartId>(p))));
  }
  return hash.value();
}

Result<ReduceFeedback> FeedbackShape::Make(FeedbackHops hops, bool gather,
                                           ResidualType type) const {
  ReduceFeedback feedback;
  feedback.elems_ = parts->TotalElems();
  feedback.shape_ = Digest();
  if (topology->world() == 1) return feedback;
  ZPP_ASSIGN_OR_RETURN(const Plan plan, CodedPlan(*this, gather));
  const std::vector<int> tiers = HopTiers(*topology, flat);
  const size_t first = hops == FeedbackHops::kAll ? 0 : tiers.size() - 1;
  bool averaged = false;
  for (size_t stage = 0; stage < std::min(tiers.size() + 1, plan.stages.size()); ++stage) {
    for (uint32_t o = plan.Begin(stage).during_end; o < plan.stages[stage].before_end; ++o) {
      const Span& out = plan.ops[o].out;
      averaged = averaged || plan.ops[o].average;
      if (stage < first || !plan.slots[out.slot].spec.compressed()) continue;
      const int tier = stage < tiers.size() ? tiers[stage] : ReduceFeedback::kGather;
      for (uint32_t i = 0; i < out.count; ++i) {
        const PartId part = plan.PartOf(out, i);
        if (parts->Elems(part) == 0) continue;
        ZPP_ASSIGN_OR_RETURN(auto residual, ErrorFeedback::Create(parts->Elems(part), type));
        feedback.pieces_.push_back({.tier = tier,
                                    .part = part,
                                    .first_elem = parts->Offset(part),
                                    .elems = parts->Elems(part),
                                    .averaged = averaged,
                                    .residual = std::move(residual)});
      }
    }
  }
  std::sort(feedback.pieces_.begin(), feedback.pieces_.end(),
            [](const auto& a, const auto& b) { return Before(a, PlaceOf(b.tier, b.part)); });
  return feedback;
}

}  // namespace zpp
