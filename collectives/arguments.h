// One call of a collective, checked: what the ranks must have agreed on, and where this rank's
// buffers lie.
#pragma once

#include <cstdint>

#include "collectives/communicator.h"
#include "collectives/plan/plan.h"

namespace zpp {

struct CallArguments {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kByte;
  int64_t elems = 0;  // of the whole vector; all-to-all: of one rank's buffer
  int root = 0;
  const void* in = nullptr;
  void* out = nullptr;
};

// Each checks everything that can be told without the other ranks: types, sizes, overflow, null,
// overlap that is not in place. kInvalidArgument with one sentence that begins with the
// collective's name.
struct Caller {
  int rank = 0;
  int world = 0;
  const CallOptions& call;
};
Result<CallArguments> CheckAllGather(const Caller& caller, const ConstVec& in, const Vec& out);
Result<CallArguments> CheckReduceScatter(const Caller& caller, const ConstVec& in, const Vec& out);
Result<CallArguments> CheckAllReduce(const Caller& caller, const ConstVec& in, const Vec& out);
Result<CallArguments> CheckAllToAll(const Caller& caller, const ConstVec& in, const Vec& out);
Result<CallArguments> CheckBroadcast(const Caller& caller, const Vec& data, int root);
Result<CallArguments> CheckBarrier(const Caller& caller);
// The same for a shape without buffers: what Explain() is asked about.
Result<CallArguments> CheckShape(const Caller& caller, const CallArguments& shape);

// Residuals of this very shape (FeedbackShape::Digest), for a call that takes them.
Status CheckFeedback(const CallArguments& args, const ReduceFeedback& feedback, uint64_t shape);

// How the vector falls into parts.
Partition PartitionOf(const CallArguments& args, std::span<const int64_t> shard_elems, int world,
                      int64_t grid_elems);

}  // namespace zpp
