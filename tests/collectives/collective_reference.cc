#include "tests/collectives/collective_reference.h"

#include <algorithm>
#include <cmath>

#include "quant/codec.h"

namespace zpp::test {
namespace {

// The sum over one domain, with the errors of the hops inside it.
Expected SumOf(const Topology& topology, const ReferenceHops& hops, int level, int id,
               const std::vector<std::vector<double>>& inputs,
               const std::vector<int64_t>& borders) {
  const Domain& domain = topology.Get(level, id);
  if (level == 0) {
    const auto& x = inputs[static_cast<size_t>(domain.ranks[0])];
    return {x, std::vector<double>(x.size(), 0)};
  }
  if (domain.children.size() == 1) {
    return SumOf(topology, hops, level - 1, domain.children[0], inputs, borders);
  }
  Expected sum{std::vector<double>(inputs[0].size(), 0), std::vector<double>(inputs[0].size(), 0)};
  for (int32_t child : domain.children) {
    Expected part = SumOf(topology, hops, level - 1, child, inputs, borders);
    Encoded(hops.hop[static_cast<size_t>(level - 1)], borders, &part);
    for (size_t i = 0; i < sum.value.size(); ++i) {
      sum.value[i] += part.value[i];
      sum.error[i] += part.error[i] + std::abs(sum.value[i]) * 0x1p-24;
    }
  }
  return sum;
}

}  // namespace

double UnitOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0x1p-24;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kByte:
      return 0;
  }
  return 0;
}

void Encoded(const QuantSpec& spec, const std::vector<int64_t>& part_borders, Expected* x) {
  if (!spec.compressed()) {
    for (size_t i = 0; i < x->value.size(); ++i) {
      x->error[i] += (std::abs(x->value[i]) + x->error[i]) * UnitOf(spec.plain);
    }
    return;
  }
  for (size_t p = 0; p + 1 < part_borders.size(); ++p) {
    for (int64_t begin = part_borders[p]; begin < part_borders[p + 1]; begin += spec.block_elems) {
      const int64_t end = std::min<int64_t>(begin + spec.block_elems, part_borders[p + 1]);
      double most = 0;
      for (int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<size_t>(i);
        most = std::max(most, std::abs(x->value[at]) + x->error[at]);
      }
      const double bound = ErrorBound(spec, static_cast<float>(most)) * 1.0001;
      for (int64_t i = begin; i < end; ++i) x->error[static_cast<size_t>(i)] += bound;
    }
  }
}

Expected Reduced(const Topology& topology, const ReferenceHops& hops, ReduceOp op,
                 const std::vector<std::vector<double>>& inputs,
                 const std::vector<int64_t>& part_borders) {
  Expected sum = SumOf(topology, hops, topology.tiers(), 0, inputs, part_borders);
  if (op == ReduceOp::kAvg) {
    const double world = topology.world();
    for (double& v : sum.value) v /= world;
    for (double& e : sum.error) e /= world;
    for (size_t i = 0; i < sum.value.size(); ++i) {
      sum.error[i] += std::abs(sum.value[i]) * 0x1p-22;  // the division, early or late
    }
  }
  return sum;
}

}  // namespace zpp::test
