// Barrier by dissemination: in round i every rank signals the one 2^i further on.
#include "collectives/plan/internal/planners.h"

namespace zpp::internal {

Plan PlanBarrier(const Job& job, int rank) {
  Builder b(job, rank);
  const int world = job.world();
  const Span nothing = {b.AddSlot(Place::kStage, QuantSpec::None(), {0, 0}), 0, 0};
  for (int64_t step = 1; step < world; step *= 2) {
    const int distance = static_cast<int>(step);
    b.Send((rank + distance) % world, nothing);
    b.Receive((rank + world - distance) % world, nothing);
    b.EndStage();
  }
  return std::move(b.plan);
}

}  // namespace zpp::internal
