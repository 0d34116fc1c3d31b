#include "collectives/exec/call_digest.h"

#include "common/hash.h"

namespace zpp {
namespace {

void Add(const QuantSpec& spec, Hash& hash) {
  for (const int field : {static_cast<int>(spec.format), static_cast<int>(spec.code),
                          static_cast<int>(spec.rounding), static_cast<int>(spec.scale_type),
                          spec.block_elems, spec.rotation, static_cast<int>(spec.plain)}) {
    hash.Add(static_cast<uint64_t>(field));
  }
}

bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllReduce;
}

}  // namespace

uint64_t CallDigest(const PlanRequest& request, const Partition& parts, int chunks) {
  Hash hash;
  hash.Add(static_cast<uint64_t>(request.kind));
  Add(request.user, hash);
  if (Reduces(request.kind)) {
    hash.Add(static_cast<uint64_t>(request.op));
    for (const QuantSpec& spec : request.hop) Add(spec, hash);
  }
  Add(request.gather, hash);
  hash.Add((request.flat ? 2 : 0) + (request.one_shot ? 1 : 0));
  hash.Add(static_cast<uint64_t>(request.kind == CollectiveKind::kBroadcast ? request.root : 0));
  hash.Add(static_cast<uint64_t>(chunks));
  hash.Add(static_cast<uint64_t>(parts.grid_elems()));
  hash.Add(static_cast<uint64_t>(parts.TotalElems()));
  if (request.kind == CollectiveKind::kAllToAll) return hash.value();
  for (int64_t p = 0; p < parts.parts(); ++p) {
    hash.Add(static_cast<uint64_t>(parts.Elems(static_cast<PartId>(p))));
  }
  return hash.value();
}

}  // namespace zpp
