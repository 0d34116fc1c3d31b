// Error feedback in reductions: what a rank's encodings lose is kept and added to the next vector
// of the same shape.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/plan/plan.h"
#include "common/status.h"
#include "quant/error_feedback.h"
#include "topology/topology.h"

namespace zpp {

// Which encodings of a reduction have feedback. kLast: the outermost hop that joins anything, where
// a rank encodes only what its node has summed for it: about n/D elements with D ranks per node.
// kAll: every hop; the innermost one alone takes all n elements.
enum class FeedbackHops : uint8_t { kLast, kAll };

// The residuals of one vector's reductions on one rank; Communicator::MakeFeedback makes them and a
// call that is given them in CallOptions uses and renews them. They depend on the topology, the
// shards and `flat`, not on encodings: they outlive a change of bits, and a hop that is not
// compressed in a call leaves its residuals as they are. Not thread-safe.
class ReduceFeedback {
 public:
  // What this rank keeps of one part at one hop.
  struct Piece {
    int tier = 0;  // that the hop crosses, 0 when flat; kGather: the gather of an all-reduce
    PartId part = 0;
    int64_t first_elem = 0;  // of the part, in the whole vector
    int64_t elems = 0;       // > 0
    // The residual is in units of the mean: multiplied by the world size it is what this rank's
    // input would have to have more. Otherwise it can be added to the input as it is.
    bool averaged = false;
    ErrorFeedback residual;
  };
  static constexpr int kGather = -1;

  ReduceFeedback() = default;

  // Innermost hop first, the gather last; then by part.
  std::span<Piece> pieces() { return pieces_; }
  std::span<const Piece> pieces() const { return pieces_; }
  // Null when nothing is kept there.
  Piece* Find(int tier, PartId part);

  // Multiplies all residuals, lazily: after a change of the loss scale or of the clip coefficient.
  Status Scale(float factor);
  // Forgets all: after a step that was skipped, or once they have been added elsewhere.
  void Drop();
  // Memory of the residuals.
  int64_t bytes() const;
  // Elements of the whole vector.
  int64_t elems() const { return elems_; }
  // FeedbackShape::Digest of what they were made for.
  uint64_t shape() const { return shape_; }

 private:
  friend struct FeedbackShape;
  int64_t elems_ = 0;
  uint64_t shape_ = 0;
  std::vector<Piece> pieces_;
};

// All that residuals depend on.
struct FeedbackShape {
  const Topology* topology = nullptr;
  int rank = 0;
  const Partition* parts = nullptr;
  ReduceOp op = ReduceOp::kSum;
  bool flat = false;

  // Equal for equal shapes. Time: the ranks.
  uint64_t Digest() const;
  // All residuals zero. `gather`: with those of an all-reduce's gather.
  Result<ReduceFeedback> Make(FeedbackHops hops, bool gather, ResidualType type) const;
};

}  // namespace zpp
