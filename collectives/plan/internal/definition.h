// What each collective is, as a formula over the ranks' contributions: the definition that plans
// are held against. It looks at the topology only, never at a plan.
#pragma once

#include "collectives/plan/internal/expression.h"
#include "collectives/plan/plan.h"

namespace zpp::internal {

class Definition {
 public:
  Definition(const PlanRequest& request, Expressions* expressions);

  // What the output holds for this part. Not for the barrier, which has no output.
  ExprId Of(PartId part);

 private:
  ExprId Reduced();
  ExprId OneShot();
  ExprId ReducedDomain(int level, int id);
  ExprId Gathered(int owner);

  const PlanRequest& request_;
  Expressions& expressions_;
  ExprId reduced_ = kNothing;  // the same for every part
};

// "" or why the formula is not a sum (mean) of every rank's contribution, in rank order within each
// hop.
std::string ExplainFormula(const Expressions& expressions, ExprId id, int world, bool average);

}  // namespace zpp::internal
