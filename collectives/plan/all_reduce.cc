// All-reduce: reduce-scatter and all-gather, or one round in which everyone sends everything.
#include <numeric>

#include "collectives/plan/internal/planners.h"

namespace zpp::internal {

Plan PlanAllReduce(const Job& job, int rank) {
  Builder b(job, rank);
  const Reduced reduced = ReduceTiers(b);
  const uint32_t out = b.AddSlot(Place::kOutput, job.request.user, reduced.held);
  const bool plain = job.gather == job.request.user;
  const uint32_t slot = plain ? out : b.AddSlot(Place::kStage, job.gather, reduced.held);
  std::vector<Span> operands = reduced.operands;
  for (Span& span : operands) span.count = 1;
  b.Combine({slot, 0, 1}, operands, reduced.average);
  GatherTiers(b, {.own = slot, .slot = slot, .out = out});
  return std::move(b.plan);
}

Plan PlanOneShot(const Job& job, int rank) {
  Builder b(job, rank);
  const int world = job.world();
  std::vector<PartId> all(static_cast<size_t>(world));
  std::iota(all.begin(), all.end(), 0u);  // ascending: one run of the user's memory
  const PartList list = b.List(all);
  const Span in = {b.AddSlot(Place::kInput, job.request.user, list), 0, list.count};
  const QuantSpec& spec = job.hop.back();
  Span own = in;
  // Contributions are exact in the user's type: a wider plain one would only cost bytes.
  if (spec != job.request.user && spec != QuantSpec::None()) {
    own.slot = b.AddSlot(Place::kStage, spec, list);
    b.Combine(own, {in});
  }
  const QuantSpec travels = b.SpecOf(own);
  std::vector<Span> operands(static_cast<size_t>(world));
  operands[static_cast<size_t>(rank)] = own;
  for (int j = 1; j < world; ++j) {
    const int from = (rank + world - j) % world;
    b.Send((rank + j) % world, own);
    const Span span = {b.AddSlot(Place::kStage, travels, list), 0, list.count};
    b.Receive(from, span);
    operands[static_cast<size_t>(from)] = span;
  }
  b.EndStage();
  const uint32_t out = b.AddSlot(Place::kOutput, job.request.user, list);
  b.Combine({out, 0, list.count}, operands, job.average);
  b.EndStage();
  return std::move(b.plan);
}

}  // namespace zpp::internal
