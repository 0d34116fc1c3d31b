// Whether a result is what the documented bounds allow, by a naive reference in double.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/bw_args.h"
#include "cli/bw_values.h"
#include "quant/codec.h"
#include "topology/topology.h"

namespace zpp::cli {

struct Question {
  const Topology* topology = nullptr;  // flattened for a flat collective
  CollectiveKind kind = CollectiveKind::kAllGather;
  ReduceOp op = ReduceOp::kSum;
  int rank = 0;
  int64_t count = 0;           // elements of the whole vector
  std::vector<QuantSpec> hop;  // what each tier of a reduction carries, innermost first
  QuantSpec gather;            // what a gather carries
};

struct Verdict {
  int64_t wrong = 0;
  int64_t compared = 0;  // elements that are finite and should be: what the sums are over
  double sum_squared_error = 0;
  double sum_squared_value = 0;
  uint64_t hash = 0;  // of all of the output's bits
};

// Of all bits of a vector.
uint64_t HashOf(ConstVec vec);

// `out` is this rank's output. Of an all-reduce each rank checks its own part: equal hashes carry
// that to all ranks. The bound of an element is the sum over hops of ErrorBound() of its block,
// plus the rounding of fp32 sums and of the output's type; a block that holds a NaN or an infinity
// must be NaN.
Verdict Judge(const Question& question, const Values& values, ConstVec out);

}  // namespace zpp::cli
