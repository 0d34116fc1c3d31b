// Runs the plans of all ranks on symbols, stage by stage.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "collectives/plan/checker.h"
#include "collectives/plan/internal/expression.h"
#include "collectives/plan/plan.h"

namespace zpp::internal {

class Machine {
 public:
  // Plans that are well formed, all with the same number of stages.
  Machine(std::span<const Plan> plans, const PlanRequest& request, const Partition& parts,
          int chunks, Proof* proof);

  void RunStage(size_t stage);
  // What part `index` of a slot holds.
  ExprId Value(int rank, uint32_t slot, uint32_t index) const {
    return values_[static_cast<size_t>(rank)][Cell(rank, slot, index)];
  }
  // stage -1: of the whole plan.
  void Fault(int rank, int64_t stage, const std::string& what);
  bool ok() const { return proof_.ok(); }
  Expressions& expressions() { return expressions_; }

 private:
  size_t Cell(int rank, uint32_t slot, uint32_t index) const {
    return bases_[static_cast<size_t>(rank)][slot] + index;
  }
  const Plan& PlanOf(int rank) const { return plans_[static_cast<size_t>(rank)]; }
  void RunOps(int rank, size_t stage, uint32_t begin, uint32_t end);
  bool RunOp(int rank, size_t stage, const Op& op);
  ExprId Operand(int rank, size_t stage, const Span& span, uint32_t index, PartId part);
  void Write(int rank, size_t stage, const Span& span, uint32_t index, ExprId value);
  void CheckSend(int rank, size_t stage, const Message& send);
  bool EncodingWasAskedFor(const QuantSpec& spec, uint8_t tier) const;
  void Exchange(size_t stage);
  void Deliver(size_t stage, int from, const Message& send, int to, const Message& recv);

  std::span<const Plan> plans_;
  const PlanRequest& request_;
  const Partition& parts_;
  int chunks_;
  Proof& proof_;
  Expressions expressions_;
  std::vector<std::vector<size_t>> bases_;   // [rank][slot]: first cell
  std::vector<std::vector<ExprId>> values_;  // [rank][cell]
  std::vector<ExprId> operands_;             // of the op at hand
};

}  // namespace zpp::internal
