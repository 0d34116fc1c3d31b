#include "collectives/plan/checker.h"

#include <algorithm>
#include <unordered_set>

#include "collectives/plan/internal/definition.h"
#include "collectives/plan/internal/machine.h"

namespace zpp {
namespace {

using internal::Definition;
using internal::ExprId;
using internal::kNothing;
using internal::Machine;

bool Reduces(const PlanRequest& request) {
  return request.kind == CollectiveKind::kReduceScatter ||
         request.kind == CollectiveKind::kAllReduce;
}

// The parts that a user's buffer has, whatever order a plan names them in.
std::vector<PartId> PartsOf(const PlanRequest& request, int rank, Place place) {
  const PartId world = static_cast<PartId>(request.topology->world());
  const PartId me = static_cast<PartId>(rank);
  const bool output = place == Place::kOutput;
  std::vector<PartId> parts;
  switch (request.kind) {
    case CollectiveKind::kBarrier:
      return {};
    case CollectiveKind::kBroadcast:
      return output || rank == request.root ? std::vector<PartId>{0} : std::vector<PartId>{};
    case CollectiveKind::kAllGather:
      if (!output) return {me};
      break;
    case CollectiveKind::kReduceScatter:
      if (output) return {me};
      break;
    case CollectiveKind::kAllReduce:
      break;
    case CollectiveKind::kAllToAll:
      for (PartId i = 0; i < world; ++i) parts.push_back(output ? i * world + me : me * world + i);
      return parts;
  }
  for (PartId i = 0; i < world; ++i) parts.push_back(i);
  return parts;
}

// One slot per user buffer, in the user's type, that names each of its parts once.
void CheckUserSlot(Machine& machine, const Plan& plan, const PlanRequest& request, Place place) {
  const char* name = place == Place::kInput ? "the input" : "the output";
  std::vector<PartId> named;
  int slots = 0;
  for (const Slot& slot : plan.slots) {
    if (slot.place != place) continue;
    if (++slots > 1) machine.Fault(plan.rank, -1, std::string("two slots over ") + name);
    if (slot.spec != request.user) {
      machine.Fault(plan.rank, -1, std::string(name) + " is not in the user's type");
    }
    const auto first = plan.part_ids.begin() + slot.parts.first;
    named.insert(named.end(), first, first + slot.parts.count);
  }
  std::sort(named.begin(), named.end());
  if (named != PartsOf(request, plan.rank, place)) {
    machine.Fault(plan.rank, -1, std::string(name) + " does not name its parts, each once");
  }
}

void CheckUserSlots(Machine& machine, const Plan& plan, const PlanRequest& request) {
  if (plan.input_is_shard != (request.kind == CollectiveKind::kAllGather) ||
      plan.output_is_shard != (request.kind == CollectiveKind::kReduceScatter)) {
    machine.Fault(plan.rank, -1, "a shard where the whole vector is due, or the reverse");
  }
  CheckUserSlot(machine, plan, request, Place::kInput);
  CheckUserSlot(machine, plan, request, Place::kOutput);
}

void CheckOutput(Machine& machine, const Plan& plan, const PlanRequest& request,
                 Definition& definition, std::unordered_set<ExprId>& seen) {
  for (uint32_t s = 0; s < plan.slots.size(); ++s) {
    if (plan.slots[s].place != Place::kOutput) continue;
    for (uint32_t i = 0; i < plan.slots[s].parts.count; ++i) {
      const PartId part = plan.part_ids[plan.slots[s].parts.first + i];
      const ExprId have = machine.Value(plan.rank, s, i), want = definition.Of(part);
      seen.insert(have);
      if (have == want) continue;
      std::string why = have == kNothing ? "never written" : "";
      if (why.empty() && Reduces(request)) {
        why = ExplainFormula(machine.expressions(), have, plan.world, request.op == ReduceOp::kAvg);
      }
      if (why.empty()) {
        why = "is " + machine.expressions().ToText(have) + ", not " +
              machine.expressions().ToText(want);
      }
      machine.Fault(plan.rank, -1, "output part " + std::to_string(part) + ": " + why);
    }
  }
}

void CheckOutputs(Machine& machine, std::span<const Plan> plans, const PlanRequest& request,
                  Proof& proof) {
  Definition definition(request, &machine.expressions());
  std::unordered_set<ExprId> seen;
  for (const Plan& plan : plans) CheckOutput(machine, plan, request, definition, seen);
  const ExprId sample = definition.Of(0);
  if (Reduces(request)) {
    const std::string why =
        ExplainFormula(machine.expressions(), sample, plans[0].world, request.op == ReduceOp::kAvg);
    if (!why.empty()) machine.Fault(0, -1, "the collective's definition is wrong: " + why);
  }
  proof.distinct_outputs = static_cast<int64_t>(seen.size());
  proof.max_quantizations = machine.expressions().Facts(sample).quantizations;
  proof.sample = machine.expressions().ToText(sample);
}

// A barrier moves nothing but knowledge: nobody leaves before he has heard, at first hand or not,
// of everyone.
class Knowledge {
 public:
  explicit Knowledge(size_t world) : world_(world), knows_(world * world, false) {
    for (size_t r = 0; r < world; ++r) knows_[r * world + r] = true;
  }
  void RunStage(std::span<const Plan> plans, size_t stage) {
    const std::vector<bool> before = knows_;
    for (const Plan& plan : plans) {
      for (uint32_t m = plan.Begin(stage).recvs_end; m < plan.stages[stage].recvs_end; ++m) {
        const size_t me = static_cast<size_t>(plan.rank) * world_;
        const size_t peer = static_cast<size_t>(plan.recvs[m].peer) * world_;
        for (size_t q = 0; q < world_; ++q) {
          if (before[peer + q]) knows_[me + q] = true;
        }
      }
    }
  }
  // The rank that `rank` has not heard of, -1: none.
  int Missing(int rank) const {
    for (size_t q = 0; q < world_; ++q) {
      if (!knows_[static_cast<size_t>(rank) * world_ + q]) return static_cast<int>(q);
    }
    return -1;
  }

 private:
  size_t world_;
  std::vector<bool> knows_;  // [rank][other]
};

void RunBarrier(Machine& machine, std::span<const Plan> plans) {
  Knowledge knowledge(plans.size());
  for (size_t k = 0; k < plans[0].stages.size() && machine.ok(); ++k) {
    machine.RunStage(k);
    knowledge.RunStage(plans, k);
  }
  for (const Plan& plan : plans) {
    const int missing = knowledge.Missing(plan.rank);
    if (missing < 0) continue;
    machine.Fault(plan.rank, -1, "leaves before rank " + std::to_string(missing) + " has come");
  }
}

std::string CheckSet(std::span<const Plan> plans, const PlanRequest& request,
                     const Partition& parts) {
  if (plans.size() != static_cast<size_t>(request.topology->world())) {
    return std::to_string(plans.size()) + " plans for a world of " +
           std::to_string(request.topology->world());
  }
  for (size_t r = 0; r < plans.size(); ++r) {
    const std::string who = "rank " + std::to_string(r) + ": ";
    if (plans[r].rank != static_cast<int>(r) || plans[r].kind != request.kind ||
        plans[r].world != static_cast<int>(plans.size())) {
      return who + "this is the plan of another rank, world or collective";
    }
    if (plans[r].stages.size() != plans[0].stages.size()) {
      return who + std::to_string(plans[r].stages.size()) + " stages, rank 0 has " +
             std::to_string(plans[0].stages.size());
    }
    const std::string fault = CheckWellFormed(plans[r], parts.parts());
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace

Proof Check(std::span<const Plan> plans, const PlanRequest& request, const Partition& parts,
            const CheckOptions& options) {
  Proof proof;
  proof.tier_bytes.assign(static_cast<size_t>(request.topology->tiers()), 0);
  const std::string fault = CheckSet(plans, request, parts);
  if (!fault.empty()) {
    proof.faults.push_back(fault);
    return proof;
  }
  Machine machine(plans, request, parts, options.chunks, &proof);
  for (const Plan& plan : plans) {
    CheckUserSlots(machine, plan, request);
    const std::string in_place = options.in_place ? CheckInPlace(plan) : "";
    if (!in_place.empty()) proof.faults.push_back(in_place);
  }
  if (request.kind == CollectiveKind::kBarrier) {
    RunBarrier(machine, plans);
    return proof;
  }
  for (size_t k = 0; k < plans[0].stages.size() && proof.ok(); ++k) machine.RunStage(k);
  if (proof.ok()) CheckOutputs(machine, plans, request, proof);
  return proof;
}

}  // namespace zpp
