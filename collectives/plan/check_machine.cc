#include "collectives/plan/internal/machine.h"

namespace zpp::internal {

Machine::Machine(std::span<const Plan> plans, const PlanRequest& request, const Partition& parts,
                 int chunks, Proof* proof)
    : plans_(plans),
      request_(request),
      parts_(parts),
      chunks_(chunks),
      proof_(*proof),
      expressions_(static_cast<int>(plans.size()), request.user.plain) {
  for (const Plan& plan : plans) {
    std::vector<size_t>& bases = bases_.emplace_back();
    std::vector<ExprId>& values = values_.emplace_back();
    for (const Slot& slot : plan.slots) {
      bases.push_back(values.size());
      const bool input = slot.place == Place::kInput;
      values.resize(values.size() + slot.parts.count,
                    input ? expressions_.Leaf(plan.rank) : kNothing);
    }
  }
}

void Machine::Fault(int rank, int64_t stage, const std::string& what) {
  constexpr size_t kMostFaults = 5;
  if (proof_.faults.size() >= kMostFaults) return;
  const std::string when = stage < 0 ? "" : ", stage " + std::to_string(stage);
  proof_.faults.push_back("rank " + std::to_string(rank) + when + ": " + what);
}

void Machine::RunStage(size_t stage) {
  for (int rank = 0; rank < static_cast<int>(plans_.size()); ++rank) {
    const Plan& plan = PlanOf(rank);
    const Stage from = plan.Begin(stage), to = plan.stages[stage];
    RunOps(rank, stage, from.during_end, to.before_end);
    for (uint32_t m = from.sends_end; m < to.sends_end; ++m) CheckSend(rank, stage, plan.sends[m]);
    RunOps(rank, stage, to.before_end, to.during_end);
  }
  Exchange(stage);
}

void Machine::RunOps(int rank, size_t stage, uint32_t begin, uint32_t end) {
  for (uint32_t o = begin; o < end; ++o) {
    if (!RunOp(rank, stage, PlanOf(rank).ops[o])) return;
  }
}

bool Machine::RunOp(int rank, size_t stage, const Op& op) {
  const Plan& plan = PlanOf(rank);
  for (uint32_t q = 0; q < op.num_in; ++q) {
    if (plan.inputs[op.first_in + q].count != op.out.count) {
      Fault(rank, static_cast<int64_t>(stage), "an operand has another number of parts");
      return false;
    }
  }
  for (uint32_t i = 0; i < op.out.count; ++i) {
    operands_.clear();
    for (uint32_t q = 0; q < op.num_in; ++q) {
      const ExprId value =
          Operand(rank, stage, plan.inputs[op.first_in + q], i, plan.PartOf(op.out, i));
      if (value == kNothing) return false;
      operands_.push_back(value);
    }
    ExprId sum = expressions_.Sum(operands_);
    if (op.average && plan.world > 1) sum = expressions_.Divide(sum);
    Write(rank, stage, op.out, i, expressions_.Encode(plan.slots[op.out.slot].spec, sum));
  }
  return true;
}

ExprId Machine::Operand(int rank, size_t stage, const Span& span, uint32_t index, PartId part) {
  const int64_t at = static_cast<int64_t>(stage);
  const PartId have = PlanOf(rank).PartOf(span, index);
  if (have != part) {
    Fault(rank, at, "takes part " + std::to_string(have) + " for part " + std::to_string(part));
    return kNothing;
  }
  const ExprId value = Value(rank, span.slot, span.first + index);
  if (value == kNothing) {
    Fault(rank, at,
          "reads part " + std::to_string(part) + " of slot " + std::to_string(span.slot) +
              " before it was written");
  }
  return value;
}

void Machine::Write(int rank, size_t stage, const Span& span, uint32_t index, ExprId value) {
  const Plan& plan = PlanOf(rank);
  ExprId& cell = values_[static_cast<size_t>(rank)][Cell(rank, span.slot, span.first + index)];
  const bool input = plan.slots[span.slot].place == Place::kInput;
  if (input || cell != kNothing) {
    Fault(rank, static_cast<int64_t>(stage),
          (input ? "writes the input, part " : "writes a second time part ") +
              std::to_string(plan.PartOf(span, index)) + " of slot " + std::to_string(span.slot));
  }
  cell = value;
}

bool Machine::EncodingWasAskedFor(const QuantSpec& spec, uint8_t tier) const {
  const bool one_hop = request_.flat || request_.one_shot;
  const bool hops = request_.kind == CollectiveKind::kReduceScatter ||
                    request_.kind == CollectiveKind::kAllReduce;
  if (hops && tier < request_.hop.size()) {
    const QuantSpec& hop = one_hop ? request_.hop.back() : request_.hop[tier];
    // What has not been summed may travel in the user's own type where a wider plain one was asked
    // for.
    if (spec == hop || (hop == QuantSpec::None() && spec == request_.user)) return true;
  }
  return request_.kind != CollectiveKind::kReduceScatter && spec == request_.gather;
}

// At Start, before the ops that run during the exchange: what is sent must lie there, complete and
// as was asked for.
void Machine::CheckSend(int rank, size_t stage, const Message& send) {
  const int64_t at = static_cast<int64_t>(stage);
  const Plan& plan = PlanOf(rank);
  const std::string to = " to rank " + std::to_string(send.peer);
  const bool barrier = request_.kind == CollectiveKind::kBarrier;
  if (barrier != (send.data.count == 0)) Fault(rank, at, "a signal where data is due" + to);
  if (!barrier && !EncodingWasAskedFor(plan.slots[send.data.slot].spec, send.tier)) {
    Fault(rank, at, "sends an encoding that nobody asked for" + to);
  }
  for (uint32_t i = 0; i < send.data.count; ++i) {
    if (Value(rank, send.data.slot, send.data.first + i) != kNothing) continue;
    Fault(rank, at, "sends a part that is not written yet" + to);
    return;
  }
}

}  // namespace zpp::internal
