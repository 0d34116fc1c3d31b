// Whether a result is what the documented bounds allow, by a naive reference in double.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/bw_args.h"
#include "cli/bw_values.h"
#include "quant/codec.h"
#include "topology/topology.h"

namespace zpp::cli {

// The encodings that a policy comes down to on a topology.
struct Hops {
  std::vector<QuantSpec> reduce;  // per tier, innermost first
  QuantSpec gather;
  int64_t grid_elems() const;  // the largest block, 1 when nothing is compressed
};
Hops HopsOf(const CollectivePolicy& policy, const Topology& topology, DType dtype);

struct Question {
  const Topology* topology = nullptr;
  CollectiveKind kind = CollectiveKind::kAllGather;
  ReduceOp op = ReduceOp::kSum;
  int rank = 0;
  int64_t count = 0;  // elements of the whole vector
  Hops hops;
};

struct Verdict {
  int64_t wrong = 0;
  double sum_squared_error = 0;
  double sum_squared_value = 0;
  uint64_t hash = 0;  // of all of the output's bits
};

// `out` is this rank's output. Of an all-reduce each rank checks its own part: equal hashes carry
// that to all ranks. The bound of an element is the sum over hops of ErrorBound() of its block,
// plus the rounding of fp32 sums and of the output's type; a block that holds a NaN or an infinity
// must be NaN.
Verdict Judge(const Question& question, const Values& values, ConstVec out);

}  // namespace zpp::cli
