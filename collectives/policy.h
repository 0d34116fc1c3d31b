// Whether and how a collective compresses.
#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/status.h"
#include "quant/quant_spec.h"

namespace zpp {

struct CollectivePolicy {
  // Encodings of the hop inside a node and of the hops across nodes. kNone keeps the vector's own
  // type. A gather has one encoding for all hops, the one for across: forwarding never recodes. A
  // flat topology's only hop is `intra`'s, unless there are no nodes to speak of and `flat` is set:
  // then `inter`'s.
  QuantSpec intra = {};
  QuantSpec inter = {};
  // Vectors of fewer bytes are not compressed; -1: the size from which the link model says that it
  // pays.
  int64_t min_compress_bytes = -1;
  // Above 0: an encoding whose relative error on N(0,1) data is larger gives way to the next finer
  // one.
  double max_rel_error = 0;
  // One hop over all ranks, whatever the topology: results do not depend on the layout of nodes, at
  // more cross-node bytes.
  bool flat = false;
  // Uncompressed partial sums travel as fp32 instead of the vector's own type.
  bool wide_partial_sums = false;

  bool lossless() const { return !intra.compressed() && !inter.compressed(); }
  bool operator==(const CollectivePolicy&) const = default;

  static CollectivePolicy Lossless() { return {}; }
  // Gradients: int8 inside a node, int4 block 128 with the sqrt code across.
  static CollectivePolicy Gradients() {
    return {.intra = QuantSpec::Int8(), .inter = QuantSpec::Int4(Code::kSqrt)};
  }
  // Weights: int8 block 256 everywhere.
  static CollectivePolicy Weights() {
    return {.intra = QuantSpec::Int8(), .inter = QuantSpec::Int8()};
  }
};

// Encodings the codec can run, a finite bound, no negative size: else kInvalidArgument or
// kUnimplemented in one sentence.
Status Validate(const CollectivePolicy& policy);

// Relative L2 error of one encoding of N(0,1) data, to about 2 %: what max_rel_error is compared
// with. 0 for kNone.
double ExpectedRelativeError(const QuantSpec& spec);

}  // namespace zpp
