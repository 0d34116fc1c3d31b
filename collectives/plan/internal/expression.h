// What a value is made of, as interned formulas: equal ids are equal bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "quant/quant_spec.h"

namespace zpp::internal {

using ExprId = uint32_t;
inline constexpr ExprId kNothing = 0;

// What a formula does to each rank's contribution.
struct ExprFacts {
  std::vector<int> times;  // per rank: how often its contribution enters
  std::vector<int>
      divisions;  // per rank: how often it is divided (the most, when it enters several times)
  int quantizations = 0;  // most encodings that lose bits on any way
  bool ascending = true;  // the operands of every sum begin with ascending ranks
};

class Expressions {
 public:
  // Contributions are values of `user`'s type.
  Expressions(int world, DType user);

  // Rank r's own value.
  ExprId Leaf(int rank);
  // decode(encode(spec, x)). Plain encodings round to their type: exact for fp32, for a value that
  // is already of that type, and for bytes. Encoding what was encoded alike changes nothing
  // (nearest rounding is idempotent).
  ExprId Encode(const QuantSpec& spec, ExprId x);
  // fp32 sum from left to right; of one operand: the operand.
  ExprId Sum(std::span<const ExprId> operands);
  // Divided by the number of ranks, in fp32.
  ExprId Divide(ExprId x);

  ExprFacts Facts(ExprId id) const;
  // Long sums are shortened.
  std::string ToText(ExprId id) const;
  size_t size() const { return nodes_.size() - 1; }

 private:
  enum class Kind : uint8_t { kLeaf, kEncode, kSum, kDivide };
  struct Node {
    Kind kind;
    uint32_t detail;        // the rank of a leaf, the encoding's number
    uint32_t first, count;  // into operands_
  };

  ExprId Intern(Kind kind, uint32_t detail, std::span<const ExprId> operands);
  uint32_t NumberOf(const QuantSpec& spec);
  std::span<const ExprId> OperandsOf(const Node& node) const {
    return std::span<const ExprId>(operands_).subspan(node.first, node.count);
  }
  bool Exact(const QuantSpec& spec, ExprId x) const;
  void Walk(ExprId id, int divisions, int quantizations, ExprFacts* facts) const;
  int LowestRank(ExprId id) const;

  int world_;
  DType user_;
  std::vector<Node> nodes_;
  std::vector<ExprId> operands_;
  std::vector<QuantSpec> specs_;
  std::unordered_multimap<uint64_t, ExprId> index_;
};

}  // namespace zpp::internal
