#include "collectives/plan/internal/builder.h"

namespace zpp::internal {

Builder::Builder(const Job& j, int r) : job(j), topology(j.route), rank(r) {
  plan.rank = rank;
  plan.world = job.world();
  plan.kind = job.request.kind;
}

PartList Builder::List(const std::vector<PartId>& ids) {
  const PartList list = {static_cast<uint32_t>(plan.part_ids.size()),
                         static_cast<uint32_t>(ids.size())};
  plan.part_ids.insert(plan.part_ids.end(), ids.begin(), ids.end());
  return list;
}

uint32_t Builder::AddSlot(Place place, const QuantSpec& spec, PartList parts) {
  plan.slots.push_back({place, spec, parts});
  return static_cast<uint32_t>(plan.slots.size() - 1);
}

void Builder::Combine(const Span& out, const std::vector<Span>& in, bool average) {
  plan.ops.push_back(
      {out, static_cast<uint32_t>(plan.inputs.size()), static_cast<uint32_t>(in.size()), average});
  plan.inputs.insert(plan.inputs.end(), in.begin(), in.end());
}

void Builder::StartExchange() {
  exchange_started_ = true;
  before_end_ = static_cast<uint32_t>(plan.ops.size());
}

void Builder::EndStage() {
  const uint32_t ops = static_cast<uint32_t>(plan.ops.size());
  plan.stages.push_back({exchange_started_ ? before_end_ : ops, ops,
                         static_cast<uint32_t>(plan.sends.size()),
                         static_cast<uint32_t>(plan.recvs.size())});
  exchange_started_ = false;
}

}  // namespace zpp::internal
