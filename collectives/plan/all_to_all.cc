// All-to-all: every pair directly, in one round.
#include "collectives/plan/internal/planners.h"

namespace zpp::internal {

Plan PlanAllToAll(const Job& job, int rank) {
  Builder b(job, rank);
  const uint32_t world = static_cast<uint32_t>(job.world());
  const uint32_t me = static_cast<uint32_t>(rank);
  std::vector<PartId> to(world), from(world);
  for (uint32_t j = 0; j < world; ++j) {
    to[j] = me * world + (me + j) % world;
    from[j] = (me + world - j) % world * world + me;
  }
  const PartList to_list = b.List(to), from_list = b.List(from);
  const uint32_t in = b.AddSlot(Place::kInput, job.request.user, to_list);
  const uint32_t out = b.AddSlot(Place::kOutput, job.request.user, from_list);
  const bool plain = job.gather == job.request.user;
  const uint32_t leaves = plain ? in : b.AddSlot(Place::kStage, job.gather, to_list);
  const uint32_t comes = plain ? out : b.AddSlot(Place::kStage, job.gather, from_list);
  if (!plain) b.Combine({leaves, 0, world}, {{in, 0, world}});
  for (uint32_t j = 1; j < world; ++j) {
    b.Send(static_cast<int>((me + j) % world), {leaves, j, 1});
    b.Receive(static_cast<int>((me + world - j) % world), {comes, j, 1});
  }
  b.StartExchange();
  b.Combine({out, 0, 1}, {{leaves, 0, 1}});
  b.EndStage();
  if (!plain) {
    b.Combine({out, 1, world - 1}, {{comes, 1, world - 1}});
    b.EndStage();
  }
  return std::move(b.plan);
}

}  // namespace zpp::internal
