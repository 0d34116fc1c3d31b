// The planners, one file per idea. Each is a pure function of the job and the rank.
#pragma once

#include <vector>

#include "collectives/plan/internal/builder.h"

namespace zpp::internal {

Plan PlanAllGather(const Job& job, int rank);      // gather.cc
Plan PlanReduceScatter(const Job& job, int rank);  // reduce.cc
Plan PlanAllReduce(const Job& job, int rank);      // all_reduce.cc
Plan PlanOneShot(const Job& job, int rank);        // all_reduce.cc
Plan PlanAllToAll(const Job& job, int rank);       // all_to_all.cc
Plan PlanBroadcast(const Job& job, int rank);      // broadcast.cc
Plan PlanBarrier(const Job& job, int rank);        // barrier.cc

// A reduction that went through all tiers: the own part of the result is the sum of `operands`, in
// child order.
struct Reduced {
  std::vector<Span> operands;
  PartList held;         // what the user's input names, own part first
  bool average = false;  // the sum has still to be divided
};
// reduce.cc: innermost tier first; encode, exchange in the group, sum, recode.
Reduced ReduceTiers(Builder& builder);

// Gathers outermost tier first into `slot` (all parts, own one first) and brings what arrives to
// the slot `out`. `own`: where the own part lies at the start, `slot` itself or the user's input.
struct Gathering {
  uint32_t own = 0, slot = 0, out = 0;
};
void GatherTiers(Builder& builder, const Gathering& gathering);  // gather.cc

// One number per rank: ranks of one class send, receive and compute alike in every stage (when
// shards are equal).
std::vector<int32_t> ClassesByShape(const Topology& topology);  // classes.cc
std::vector<int32_t> ClassPerRank(int world);

}  // namespace zpp::internal
