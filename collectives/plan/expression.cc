#include "collectives/plan/internal/expression.h"

#include <algorithm>

namespace zpp::internal {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

}  // namespace

Expressions::Expressions(int world, DType user) : world_(world), user_(user) {
  nodes_.push_back({});  // kNothing
}

ExprId Expressions::Intern(Kind kind, uint32_t detail, std::span<const ExprId> operands) {
  uint64_t hash = Mix(Mix(17, static_cast<uint64_t>(kind)), detail);
  for (ExprId id : operands) hash = Mix(hash, id);
  const auto [low, high] = index_.equal_range(hash);
  for (auto it = low; it != high; ++it) {
    const Node& node = nodes_[it->second];
    const auto have = OperandsOf(node);
    if (node.kind == kind && node.detail == detail &&
        std::equal(have.begin(), have.end(), operands.begin(), operands.end())) {
      return it->second;
    }
  }
  const ExprId id = static_cast<ExprId>(nodes_.size());
  nodes_.push_back({kind, detail, static_cast<uint32_t>(operands_.size()),
                    static_cast<uint32_t>(operands.size())});
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  index_.emplace(hash, id);
  return id;
}

uint32_t Expressions::NumberOf(const QuantSpec& spec) {
  const auto it = std::find(specs_.begin(), specs_.end(), spec);
  if (it != specs_.end()) return static_cast<uint32_t>(it - specs_.begin());
  specs_.push_back(spec);
  return static_cast<uint32_t>(specs_.size() - 1);
}

ExprId Expressions::Leaf(int rank) { return Intern(Kind::kLeaf, static_cast<uint32_t>(rank), {}); }

bool Expressions::Exact(const QuantSpec& spec, ExprId x) const {
  const Node& node = nodes_[x];
  if (node.kind == Kind::kEncode && specs_[node.detail] == spec) {
    return spec.rounding == Rounding::kNearest;
  }
  if (spec.compressed()) return false;
  if (spec.plain == DType::kF32 || spec.plain == DType::kByte) return true;
  return node.kind == Kind::kLeaf && spec.plain == user_;
}

ExprId Expressions::Encode(const QuantSpec& spec, ExprId x) {
  if (Exact(spec, x)) return x;
  return Intern(Kind::kEncode, NumberOf(spec), std::span(&x, 1));
}

ExprId Expressions::Sum(std::span<const ExprId> operands) {
  return operands.size() == 1 ? operands[0] : Intern(Kind::kSum, 0, operands);
}

ExprId Expressions::Divide(ExprId x) { return Intern(Kind::kDivide, 0, std::span(&x, 1)); }

int Expressions::LowestRank(ExprId id) const {
  const Node& node = nodes_[id];
  if (node.kind == Kind::kLeaf) return static_cast<int>(node.detail);
  int lowest = world_;
  for (ExprId operand : OperandsOf(node)) lowest = std::min(lowest, LowestRank(operand));
  return lowest;
}

void Expressions::Walk(ExprId id, int divisions, int quantizations, ExprFacts* facts) const {
  const Node& node = nodes_[id];
  switch (node.kind) {
    case Kind::kLeaf: {
      const size_t rank = node.detail;
      ++facts->times[rank];
      facts->divisions[rank] = std::max(facts->divisions[rank], divisions);
      facts->quantizations = std::max(facts->quantizations, quantizations);
      return;
    }
    case Kind::kEncode:
      quantizations += specs_[node.detail].compressed() ? 1 : 0;
      break;
    case Kind::kDivide:
      ++divisions;
      break;
    case Kind::kSum:
      break;
  }
  int last = -1;
  for (ExprId operand : OperandsOf(node)) {
    const int lowest = LowestRank(operand);
    if (lowest <= last) facts->ascending = false;
    last = lowest;
    Walk(operand, divisions, quantizations, facts);
  }
}

ExprFacts Expressions::Facts(ExprId id) const {
  ExprFacts facts;
  facts.times.assign(static_cast<size_t>(world_), 0);
  facts.divisions.assign(static_cast<size_t>(world_), 0);
  Walk(id, 0, 0, &facts);
  return facts;
}

std::string Expressions::ToText(ExprId id) const {
  if (id == kNothing) return "nothing";
  const Node& node = nodes_[id];
  const auto operands = OperandsOf(node);
  switch (node.kind) {
    case Kind::kLeaf:
      return std::to_string(node.detail);
    case Kind::kEncode: {
      const QuantSpec& spec = specs_[node.detail];
      const std::string name = spec.format == Format::kInt8   ? "q8"
                               : spec.format == Format::kInt4 ? "q4"
                                                              : std::string(DTypeName(spec.plain));
      return name + "(" + ToText(operands[0]) + ")";
    }
    case Kind::kDivide:
      return ToText(operands[0]) + "/" + std::to_string(world_);
    case Kind::kSum:
      break;
  }
  std::string text = "(";
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i == 3 && operands.size() > 5) {
      text += "+..";
      i = operands.size() - 1;
    }
    text += (i > 0 ? "+" : "") + ToText(operands[i]);
  }
  return text + ")";
}

}  // namespace zpp::internal
