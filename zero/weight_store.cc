#include <cstring>
#include <deque>

#include "zero/compression.h"
#include "zero/internal/plain_math.h"
#include "zero/internal/weight_store.h"

namespace zpp::internal {

Result<WeightStore> WeightStore::Create(const EngineContext* context) {
  WeightStore store;
  store.context_ = context;
  int64_t bytes = 0;
  for (const Slab& slab : context->map.slabs) {
    store.offset_bytes_.push_back(slab.kind.unit < 0 ? bytes : -1);
    if (slab.kind.unit < 0) {
      bytes += (slab.elems * SizeOf(slab.kind.compute) + 63) / 64 * 64;
    }
  }
  ZPP_ASSIGN_OR_RETURN(store.memory_, Buffer::Allocate(static_cast<size_t>(bytes)));
  if (bytes > 0) std::memset(store.memory_.data(), 0, static_cast<size_t>(bytes));
  return store;
}

Vec WeightStore::slab(int a) const {
  const int64_t offset = offset_bytes_[static_cast<size_t>(a)];
  const Slab& slab = context_->slab(a);
  if (offset < 0) return {slab.kind.compute, nullptr, 0};
  return {slab.kind.compute, memory_.data() + offset, slab.elems};
}

Vec WeightStore::own(int bucket) const {
  const Bucket& b = context_->bucket(bucket);
  const Vec whole = slab(b.slab);
  if (whole.elems == 0) return whole;
  const ElemRange range = context_->Own(bucket);
  return Slice(whole, b.slab_first + range.first, range.elems);
}

bool WeightStore::Follows(int bucket, bool exact) const {
  return !exact && SendsDifferences(context_->config, context_->kind(bucket));
}

Vec WeightStore::optimizer_output(int bucket, bool exact) const {
  return Follows(bucket, exact) ? Vec{} : own(bucket);
}

// At most allgather_bucket_elems on their way at once, but always one.
Status WeightStore::Refresh(const OwnedState& owned, int64_t step, bool exact) {
  step_ = step;
  if (context_->config.stage == 0) return {};
  std::deque<Pending> pending;
  int64_t elems = 0;
  for (const int b : context_->map.reduce_order) {
    if (context_->kind(b).unit >= 0 || context_->bucket(b).elems == 0) continue;
    elems += context_->bucket(b).elems;
    while (!pending.empty() && elems > context_->config.allgather_bucket_elems) {
      elems -= context_->bucket(pending.front().bucket).elems;
      ZPP_RETURN_IF_ERROR(Finish(pending.front()));
      pending.pop_front();
    }
    ZPP_ASSIGN_OR_RETURN(Pending started, Start(owned, b, exact));
    pending.push_back(std::move(started));
  }
  for (Pending& last : pending) ZPP_RETURN_IF_ERROR(Finish(last));
  return {};
}

Result<WeightStore::Pending> WeightStore::Start(const OwnedState& owned, int bucket, bool exact) {
  if (Follows(bucket, exact)) return StartDifference(owned, bucket);
  const Bucket& b = context_->bucket(bucket);
  const Vec whole = Slice(slab(b.slab), b.slab_first, b.elems);
  const CallOptions call{
      .policy = CollectivePolicy::Lossless(), .shard_elems = b.shard_elems, .noise = {}};
  return Pending{bucket, context_->comm->StartAllGather(AsConst(own(bucket)), whole, call), {}, {}};
}

// What the owner's master is ahead of the replicas, the own one included: all add the same decoded
// difference, so replicas stay equal and their error never accumulates.
Result<WeightStore::Pending> WeightStore::StartDifference(const OwnedState& owned, int bucket) {
  const Bucket& b = context_->bucket(bucket);
  const Vec replica = own(bucket);
  Pending pending{bucket, Work::Ended({}), {}, {}};
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  ZPP_ASSIGN_OR_RETURN(pending.own, pool_.Take(replica.elems * kBytes));
  ZPP_ASSIGN_OR_RETURN(pending.difference, pool_.Take(b.elems * kBytes));
  ZPP_RETURN_IF_ERROR(Subtract(owned.master(bucket), AsConst(replica), FloatsOf(pending.own)));
  const CallOptions call{.policy = DifferencePolicy(context_->config, context_->kind(bucket)),
                         .shard_elems = b.shard_elems,
                         .noise = context_->Noise(NoiseUse::kWeights, bucket, step_),
                         .stats = &stats_};
  pending.work =
      context_->comm->StartAllGather(VecOf(std::span<const float>(FloatsOf(pending.own))),
                                     VecOf(FloatsOf(pending.difference)), call);
  return pending;
}

Status WeightStore::Finish(Pending& pending) {
  ZPP_RETURN_IF_ERROR(pending.work.Wait(context_->Patience()));
  if (!pending.difference.empty()) {
    const Bucket& b = context_->bucket(pending.bucket);
    ZPP_RETURN_IF_ERROR(AddTo(Slice(slab(b.slab), b.slab_first, b.elems),
                              VecOf(std::span<const float>(FloatsOf(pending.difference)))));
  }
  pool_.Give(std::move(pending.difference));
  pool_.Give(std::move(pending.own));
  return {};
}

ErrorStats WeightStore::TakeStats() { return std::exchange(stats_, {}); }

}  // namespace zpp::internal
