// Whole parameters into the parts that the ranks own, and back.
#include <algorithm>
#include <vector>

#include "common/hash.h"
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

Status ZeroEngine::Impl::CheckSameWeights(std::span<const ConstVec> weights) const {
  std::vector<uint64_t> digests;
  std::vector<std::string> names;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto bytes = static_cast<size_t>(weights[i].elems * SizeOf(weights[i].dtype));
    Hash hash;
    hash.Add(static_cast<uint64_t>(weights[i].dtype));
    hash.Add(std::span(static_cast<const std::byte*>(weights[i].data), bytes));
    digests.push_back(hash.value());
    names.push_back("the initial value of parameter " + ToString(context_.params[i]));
  }
  return internal::CheckSame(*context_.comm, digests, names);
}

Status ZeroEngine::Impl::LoadWeights(std::span<const ConstVec> weights) {
  if (weights.size() != context_.params.size()) {
    return InvalidArgument("LoadWeights: " + std::to_string(weights.size()) + " tensors for " +
                           std::to_string(context_.params.size()) + " parameters");
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].elems != context_.params[i].elems() || !IsFloat(weights[i].dtype)) {
      return InvalidArgument("LoadWeights: parameter " + ToString(context_.params[i]) +
                             " is given " + std::to_string(weights[i].elems) + " elements of " +
                             std::string(DTypeName(weights[i].dtype)));
    }
  }
  ZPP_RETURN_IF_ERROR(gatherer_->CheckReleased());
  ZPP_RETURN_IF_ERROR(CheckSameWeights(weights));
  ZPP_RETURN_IF_ERROR(DropStep());
  for (int b = 0; b < context_.num_buckets(); ++b) {
    std::fill(owned_->m(b).begin(), owned_->m(b).end(), 0.0f);
    std::fill(owned_->v(b).begin(), owned_->v(b).end(), 0.0f);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    ZPP_RETURN_IF_ERROR(SetWeights(static_cast<int>(i), weights[i]));
  }
  reducer_->DropResiduals();
  carry_ = {};
  residual_factor_ = 1;
  steps_ = applied_ = 0;
  if (context_.config.fp16.enabled) {
    ZPP_ASSIGN_OR_RETURN(scaler_, LossScaler::Create(context_.config.fp16));
  }
  RestartErrorControl();
  broken_ = {};
  BeginStep();
  return {};
}

// Master, shard and replica of one parameter, as far as this rank has them.
Status ZeroEngine::Impl::SetWeights(int param, const ConstVec& values) {
  const ParamPlace& place = context_.map.places[static_cast<size_t>(param)];
  if (const Vec replica = store_->slab(place.slab); replica.elems > 0) {
    ZPP_RETURN_IF_ERROR(
        internal::Convert(values, internal::Slice(replica, place.slab_first, values.elems)));
  }
  const Slab& slab = context_.slab(place.slab);
  for (int b = slab.first_bucket; b < slab.first_bucket + slab.num_buckets; ++b) {
    const ElemRange own = context_.Own(b);
    for (const ParamPiece& whole : context_.bucket(b).pieces) {
      const ParamPiece piece = internal::Intersect(whole, own);
      if (piece.param != param || piece.elems <= 0) continue;
      const ConstVec part = internal::Slice(values, piece.param_first, piece.elems);
      const int64_t at = piece.bucket_first - own.first;
      if (!owned_->master(b).empty()) {
        ZPP_RETURN_IF_ERROR(internal::Convert(
            part, internal::Slice(internal::VecOf(owned_->master(b)), at, piece.elems)));
      }
      if (const Vec shard = owned_->shard_weights(b); shard.elems > 0) {
        ZPP_RETURN_IF_ERROR(internal::Convert(part, internal::Slice(shard, at, piece.elems)));
      }
    }
  }
  return {};
}

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
