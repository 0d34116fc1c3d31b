#include "collectives/plan/internal/definition.h"

#include <algorithm>

namespace zpp::internal {

Definition::Definition(const PlanRequest& request, Expressions* expressions)
    : request_(request), expressions_(*expressions) {}

// The sum over a domain: its children's sums, each encoded for the hop, in child order. A mean is
// divided where the first sum is made; a lone rank among domains that have summed is divided before
// it is encoded.
ExprId Definition::ReducedDomain(int level, int id) {
  const Topology& topology = *request_.topology;
  const Domain& domain = topology.Get(level, id);
  if (level == 0) return expressions_.Leaf(domain.ranks[0]);
  if (domain.children.size() == 1) return ReducedDomain(level - 1, domain.children[0]);
  const bool first_sum = domain.ranks.size() == domain.children.size();
  const bool average = request_.op == ReduceOp::kAvg;
  std::vector<ExprId> operands;
  for (int32_t child : domain.children) {
    ExprId value = ReducedDomain(level - 1, child);
    const bool lone = topology.Get(level - 1, child).ranks.size() == 1;
    if (average && lone && !first_sum) value = expressions_.Divide(value);
    operands.push_back(expressions_.Encode(request_.hop[static_cast<size_t>(level - 1)], value));
  }
  const ExprId sum = expressions_.Sum(operands);
  return average && first_sum ? expressions_.Divide(sum) : sum;
}

// All ranks in one hop, in rank order.
ExprId Definition::OneShot() {
  const QuantSpec& hop = request_.hop.back();
  std::vector<ExprId> operands;
  for (int rank = 0; rank < request_.topology->world(); ++rank) {
    operands.push_back(expressions_.Encode(hop, expressions_.Leaf(rank)));
  }
  const ExprId sum = expressions_.Sum(operands);
  return request_.op == ReduceOp::kAvg ? expressions_.Divide(sum) : sum;
}

ExprId Definition::Reduced() {
  if (reduced_ == kNothing) {
    const bool one_hop =
        request_.flat || (request_.kind == CollectiveKind::kAllReduce && request_.one_shot);
    const ExprId sum = one_hop ? OneShot() : ReducedDomain(request_.topology->tiers(), 0);
    reduced_ = sum;
    if (request_.kind == CollectiveKind::kAllReduce && !request_.one_shot) {
      reduced_ = expressions_.Encode(request_.gather, reduced_);
    }
    reduced_ = expressions_.Encode(request_.user, reduced_);
  }
  return reduced_;
}

ExprId Definition::Gathered(int owner) {
  return expressions_.Encode(request_.user,
                             expressions_.Encode(request_.gather, expressions_.Leaf(owner)));
}

ExprId Definition::Of(PartId part) {
  const int world = request_.topology->world();
  if (world == 1) return expressions_.Leaf(0);
  switch (request_.kind) {
    case CollectiveKind::kAllGather:
      return Gathered(static_cast<int>(part));
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllReduce:
      return Reduced();
    case CollectiveKind::kAllToAll:
      return Gathered(static_cast<int>(part) / world);
    case CollectiveKind::kBroadcast:
      return Gathered(request_.root);
    case CollectiveKind::kBarrier:
      break;
  }
  return kNothing;
}

std::string ExplainFormula(const Expressions& expressions, ExprId id, int world, bool average) {
  const ExprFacts facts = expressions.Facts(id);
  for (int rank = 0; rank < world; ++rank) {
    const int times = facts.times[static_cast<size_t>(rank)];
    const std::string who = "the contribution of rank " + std::to_string(rank);
    if (times == 0) return who + " is left out";
    if (times > 1) return who + " counts " + std::to_string(times) + " times";
    const int divisions = facts.divisions[static_cast<size_t>(rank)];
    if (divisions != (average && world > 1 ? 1 : 0)) {
      return who + " is divided " + std::to_string(divisions) + " times";
    }
  }
  return facts.ascending ? "" : "the operands of a sum are not in rank order";
}

}  // namespace zpp::internal
