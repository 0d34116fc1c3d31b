#include "collectives/exec/message_runs.h"

namespace zpp {

PartRun NextRun(const PreparedPlan& prepared, const Span& span, uint32_t first, int chunk) {
  const Plan& plan = prepared.plan;
  if (plan.slots[span.slot].spec.compressed()) return {first, span.count - first};
  PartRun run{first, 1};
  if (plan.kind == CollectiveKind::kAllToAll) return run;
  const Partition& parts = prepared.parts;
  const int chunks = prepared.pipeline.chunks;
  for (uint32_t i = first + 1; i < span.count; ++i) {
    const PartId last = plan.PartOf(span, i - 1);
    const PartId next = plan.PartOf(span, i);
    if (next != last + 1) break;
    if (parts.ChunkOf(last, chunk, chunks).end != parts.Elems(last)) break;
    if (parts.ChunkOf(next, chunk, chunks).begin != 0) break;
    ++run.count;
  }
  return run;
}

}  // namespace zpp
