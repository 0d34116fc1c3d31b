// What a collective must give, computed naively in double: nothing here knows plans, chunks or
// messages.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan/plan.h"
#include "common/dtype.h"
#include "quant/quant_spec.h"
#include "topology/topology.h"

namespace zpp::test {

// A value and how far the result may be from it.
struct Expected {
  std::vector<double> value;
  std::vector<double> error;
};

// How the values that meet in a tier are carried.
struct ReferenceHops {
  std::vector<QuantSpec> hop;  // per tier; one entry: all ranks at once
  QuantSpec gather;
};

// The element types' own rounding, relative.
double UnitOf(DType dtype);

// Adds what one encoding of `x` in `spec`, blocks counted from `border` to `border`, may change.
void Encoded(const QuantSpec& spec, const std::vector<int64_t>& part_borders, Expected* x);

// sum or mean of inputs[rank], nested as the topology nests, with the error of every hop.
Expected Reduced(const Topology& topology, const ReferenceHops& hops, ReduceOp op,
                 const std::vector<std::vector<double>>& inputs,
                 const std::vector<int64_t>& part_borders);

}  // namespace zpp::test
