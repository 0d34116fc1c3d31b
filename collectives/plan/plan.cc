// Names and sizes of plans.
#include "collectives/plan/plan.h"

#include "quant/wire.h"

namespace zpp {

std::string_view CollectiveName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "unknown";
}

int64_t Plan::Bytes() const {
  auto of = [](const auto& list) { return static_cast<int64_t>(list.size() * sizeof(list[0])); };
  return of(part_ids) + of(slots) + of(inputs) + of(ops) + of(sends) + of(recvs) + of(stages) +
         static_cast<int64_t>(sizeof(*this) + reason.size());
}

int64_t UserOffset(const Plan& plan, const Partition& parts, Place place, PartId part) {
  const bool output = place == Place::kOutput;
  if (output ? plan.output_is_shard : plan.input_is_shard) return 0;
  return parts.Offset(part, output);
}

int64_t SpanBytes(const Plan& plan, const Partition& parts, const Span& span, int chunk,
                  int chunks) {
  const QuantSpec& spec = plan.slots[span.slot].spec;
  int64_t bytes = 0;
  int64_t last_elems = 0, last_bytes = 0;  // neighbours are mostly of one size
  for (uint32_t i = 0; i < span.count; ++i) {
    const int64_t elems = parts.ChunkOf(plan.PartOf(span, i), chunk, chunks).elems();
    if (elems != last_elems) {
      last_elems = elems;
      last_bytes = MessageBytes(spec, elems);
    }
    bytes += last_bytes;
  }
  return bytes;
}

std::vector<int64_t> SentBytes(const Plan& plan, const Partition& parts, int chunks, int tiers) {
  std::vector<int64_t> bytes(static_cast<size_t>(tiers), 0);
  for (const Message& message : plan.sends) {
    for (int c = 0; c < chunks; ++c) {
      bytes[message.tier] += SpanBytes(plan, parts, message.data, c, chunks);
    }
  }
  return bytes;
}

}  // namespace zpp
