// Why a plan looks as it does, in words.
#include "collectives/plan/internal/job.h"

namespace zpp::internal {
namespace {

int UsedTiers(const Topology& topology) {
  int used = 0;
  for (int t = 0; t < topology.tiers(); ++t) used += topology.MaxChildren(t + 1) > 1 ? 1 : 0;
  return used;
}

// "int8/256 at tier 0, int4/128/sqrt at tier 1"
std::string Hops(const Job& job) {
  std::string text;
  for (int t = 0; t < job.route.tiers(); ++t) {
    if (job.route.MaxChildren(t + 1) == 1) continue;
    if (!text.empty()) text += ", ";
    text += ToString(job.hop[static_cast<size_t>(t)]) + " at tier " + std::to_string(t);
  }
  return text;
}

std::string Shape(const Job& job, const char* order, const char* why) {
  if (UsedTiers(job.route) > 1) {
    return std::to_string(UsedTiers(job.route)) + " tiers, " + order + ": " + why;
  }
  if (job.place.tiers() > job.route.tiers()) {
    return "one hop over all ranks: the result does not depend on the layout of nodes";
  }
  return "one tier: every pair directly, in one round";
}

std::string Gather(const Job& job) {
  return "one encoding for all hops (" + ToString(job.gather) + "), never recoded on the way";
}

std::string Reduce(const Job& job) {
  return Shape(job, "innermost first", "what crosses a slow link has been summed before") +
         "; fp32 sums in rank order, sent as " + Hops(job);
}

std::string AllReduce(const Job& job) {
  if (job.request.one_shot) {
    return "one round, everyone sends all: small vectors pay for rounds, not for bytes; sums in "
           "rank order, sent as " +
           ToString(job.hop.back());
  }
  return "reduce-scatter, then all-gather: " + Reduce(job) + "; gathered in " + Gather(job);
}

}  // namespace

std::string ReasonOf(const Job& job) {
  if (job.world() == 1) return "one rank: a copy";
  switch (job.request.kind) {
    case CollectiveKind::kAllGather:
      return Shape(job, "outermost first", "every byte crosses each slow link once") + "; " +
             Gather(job);
    case CollectiveKind::kReduceScatter:
      return Reduce(job);
    case CollectiveKind::kAllReduce:
      return AllReduce(job);
    case CollectiveKind::kAllToAll:
      return "every pair directly, in one round: no byte travels twice (" + ToString(job.gather) +
             ")";
    case CollectiveKind::kBroadcast:
      return "a binomial tree per tier, outermost first; " + Gather(job);
    case CollectiveKind::kBarrier:
      return "dissemination: round i signals the rank 2^i further on, no bytes";
  }
  return "";
}

}  // namespace zpp::internal
