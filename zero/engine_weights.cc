// Whole parameters from the parts that the ranks own.
#include <algorithm>
#include <vector>

#include "zero/internal/engine_impl.h"
#include "zero/internal/plain_math.h"

namespace zpp {
namespace {

using internal::ElemRange;
using internal::EngineContext;

// out = the piece, from the ranks' shards of its bucket; `own` is this rank's, of out's type.
// Sends what the piece has and no more. Collective.
Status GatherPiece(const EngineContext& context, int bucket, const ParamPiece& piece,
                   const ConstVec& own, const Vec& out) {
  if (context.config.stage == 0) {
    return internal::Convert(internal::Slice(own, piece.bucket_first, piece.elems), out);
  }
  const Bucket& b = context.bucket(bucket);
  std::vector<int64_t> part_elems;
  for (size_t rank = 0; rank < b.shard_elems.size(); ++rank) {
    const ElemRange shard{b.shard_first[rank], b.shard_elems[rank]};
    part_elems.push_back(std::max<int64_t>(0, internal::Intersect(piece, shard).elems));
  }
  const ElemRange mine = context.Own(bucket);
  const ParamPiece part = internal::Intersect(piece, mine);
  const ConstVec in = part.elems > 0
                          ? internal::Slice(own, part.bucket_first - mine.first, part.elems)
                          : ConstVec{out.dtype, nullptr, 0};
  return context.comm->AllGather(
      in, out, {.policy = CollectivePolicy::Lossless(), .shard_elems = part_elems, .noise = {}});
}

// Calls visit(bucket, piece) for every piece of the parameter, in order.
template <typename Visit>
Status ForEachPiece(const EngineContext& context, int param, const Visit& visit) {
  const Slab& slab = context.slab(context.map.places[static_cast<size_t>(param)].slab);
  for (int b = slab.first_bucket; b < slab.first_bucket + slab.num_buckets; ++b) {
    for (const ParamPiece& piece : context.bucket(b).pieces) {
      if (piece.param == param) ZPP_RETURN_IF_ERROR(visit(b, piece));
    }
  }
  return {};
}

}  // namespace

Status ZeroEngine::Impl::ReadWeights(int param, std::span<float> out) {
  ZPP_RETURN_IF_ERROR(broken_);
  ZPP_RETURN_IF_ERROR(CheckParam("ReadWeights", param));
  const ParamSpec& spec = context_.params[static_cast<size_t>(param)];
  if (static_cast<int64_t>(out.size()) != spec.elems()) {
    return InvalidArgument("ReadWeights: " + ToString(spec) + " into " +
                           std::to_string(out.size()) + " elements");
  }
  if (!spec.trainable) return ReadComputeWeights(param, internal::VecOf(out));
  return ForEachPiece(context_, param, [&](int b, const ParamPiece& piece) {
    const std::span<const float> master = owned_->master(b);
    return GatherPiece(context_, b, piece, internal::VecOf(master),
                       internal::Slice(internal::VecOf(out), piece.param_first, piece.elems));
  });
}

Status ZeroEngine::Impl::ReadComputeWeights(int param, const Vec& out) {
  const Slab& slab = context_.slab(context_.map.places[static_cast<size_t>(param)].slab);
  if (slab.kind.unit < 0) return internal::Convert(Weights(param), out);
  const DType type = slab.kind.compute;
  return ForEachPiece(context_, param, [&](int b, const ParamPiece& piece) -> Status {
    const Vec to = internal::Slice(out, piece.param_first, piece.elems);
    const ConstVec own = internal::AsConst(owned_->shard_weights(b));
    if (type == out.dtype) return GatherPiece(context_, b, piece, own, to);
    ZPP_ASSIGN_OR_RETURN(const Buffer gathered,
                         Buffer::Allocate(static_cast<size_t>(piece.elems * SizeOf(type))));
    const Vec as_computed{type, gathered.data(), piece.elems};
    ZPP_RETURN_IF_ERROR(GatherPiece(context_, b, piece, own, as_computed));
    return internal::Convert(internal::AsConst(as_computed), to);
  });
}

}  // namespace zpp
