#include <algorithm>
#include <utility>

#include "zero/compression.h"
#include "zero/internal/plain_math.h"
#include "zero/internal/unit_gatherer.h"

namespace zpp::internal {
namespace {

constexpr size_t kMaxTrace = 1 << 20;

}  // namespace

Result<UnitGatherer> UnitGatherer::Create(const EngineContext* context, const OwnedState* owned) {
  UnitGatherer gatherer;
  gatherer.context_ = context;
  gatherer.owned_ = owned;
  gatherer.data_.resize(context->map.slabs.size());
  for (const std::vector<int>& slabs : context->map.slabs_of_unit) {
    Unit unit;
    for (const int a : slabs) unit.elems += context->slab(a).elems;
    gatherer.units_.push_back(std::move(unit));
  }
  ZPP_RETURN_IF_ERROR(gatherer.CreateSecondaries());
  return gatherer;
}

// hpZ groups are runs of hpz_partition_size ranks of one node, in rank order; the caller has
// checked that the size divides every node.
Status UnitGatherer::CreateSecondaries() {
  const int size = context_->config.hpz_partition_size;
  if (context_->config.stage != 3 || size <= 1) return {};
  const Topology& topology = context_->comm->topology();
  const std::span<const int32_t> node = topology.NodeGroup(context_->comm->rank());
  const auto mine = std::find(node.begin(), node.end(), context_->comm->rank()) - node.begin();
  const int color = node[static_cast<size_t>(mine / size * size)];
  ZPP_ASSIGN_OR_RETURN(auto group, context_->comm->Split(color));
  group_ = std::move(group);
  secondary_.resize(context_->map.slabs.size());
  for (int a = 0; a < context_->num_slabs(); ++a) {
    const Slab& slab = context_->slab(a);
    if (slab.kind.unit < 0) continue;
    Secondary& secondary = secondary_[static_cast<size_t>(a)];
    const int64_t tiles = slab.elems / slab.kind.grid_elems();
    for (int64_t r = 0; r < size; ++r) {
      const int64_t first = tiles * r / size, end = tiles * (r + 1) / size;
      if (r == group_->rank()) secondary.first = first * slab.kind.grid_elems();
      secondary.shard_elems.push_back((end - first) * slab.kind.grid_elems());
    }
    const int64_t own = secondary.shard_elems[static_cast<size_t>(group_->rank())];
    ZPP_ASSIGN_OR_RETURN(secondary.data,
                         Buffer::Allocate(static_cast<size_t>(own * SizeOf(slab.kind.compute))));
  }
  return {};
}

void UnitGatherer::BeginStep(int64_t step, bool exact) {
  step_ = step;
  exact_ = exact;
  trace_ = std::exchange(recording_, {});
  position_ = 0;
  follows_trace_ = !trace_.empty();
}

Status UnitGatherer::Gather(int unit) {
  // A loop that never steps teaches nothing.
  if (recording_.size() < kMaxTrace) recording_.push_back(unit);
  follows_trace_ = follows_trace_ && position_ < trace_.size() && trace_[position_] == unit;
  ++position_;
  if (at(unit).state == State::kAbsent) ZPP_RETURN_IF_ERROR(Start(unit));
  ZPP_RETURN_IF_ERROR(Finish(unit));
  ++at(unit).users;
  return Prefetch();
}

// A function of the calls alone, never of time: all ranks fetch the same.
Status UnitGatherer::Prefetch() {
  if (!follows_trace_) return {};
  int64_t ahead_elems = 0;
  for (size_t i = position_; i < trace_.size(); ++i) {
    const Unit& next = at(trace_[i]);
    ahead_elems += next.elems;
    if (ahead_elems > context_->config.prefetch_bucket_elems) return {};
    if (next.state != State::kAbsent) continue;
    if (live_elems_ + next.elems > context_->config.max_live_elems) return {};
    ZPP_RETURN_IF_ERROR(Start(trace_[i]));
  }
  return {};
}

Status UnitGatherer::Start(int number) {
  Unit& unit = at(number);
  unit.state = State::kInFlight;
  live_elems_ += unit.elems;
  for (const int a : context_->map.slabs_of_unit[static_cast<size_t>(number)]) {
    ZPP_RETURN_IF_ERROR(StartSlab(unit, a));
  }
  return {};
}

Status UnitGatherer::StartSlab(Unit& unit, int a) {
  const Slab& slab = context_->slab(a);
  Buffer& data = data_[static_cast<size_t>(a)];
  ZPP_ASSIGN_OR_RETURN(data, pool_.Take(slab.elems * SizeOf(slab.kind.compute)));
  const Vec whole{slab.kind.compute, data.data(), slab.elems};
  CallOptions call{.policy = CollectivePolicy::Lossless(), .shard_elems = {}, .noise = {}};
  if (group_ && secondary_[static_cast<size_t>(a)].generation == generation_) {
    const Secondary& secondary = secondary_[static_cast<size_t>(a)];
    call.shard_elems = secondary.shard_elems;
    const int64_t own = secondary.shard_elems[static_cast<size_t>(group_->rank())];
    unit.works.push_back(
        group_->StartAllGather({slab.kind.compute, secondary.data.data(), own}, whole, call));
    return {};
  }
  if (!exact_ && CompressesGathers(context_->config, slab.kind)) {
    call.policy = GatherPolicy(context_->config, slab.kind);
    call.stats = &stats_;
  }
  for (int b = slab.first_bucket; b < slab.first_bucket + slab.num_buckets; ++b) {
    const Bucket& bucket = context_->bucket(b);
    call.shard_elems = bucket.shard_elems;
    call.noise = context_->Noise(NoiseUse::kWeights, b, step_);
    unit.works.push_back(context_->comm->StartAllGather(
        AsConst(owned_->shard_weights(b)), Slice(whole, bucket.slab_first, bucket.elems), call));
  }
  return {};
}

Status UnitGatherer::Finish(int number) {
  Unit& unit = at(number);
  if (unit.state != State::kInFlight) return {};
  for (Work& work : unit.works) ZPP_RETURN_IF_ERROR(work.Wait(context_->Patience()));
  unit.works.clear();
  unit.state = State::kLive;
  for (const int a : context_->map.slabs_of_unit[static_cast<size_t>(number)]) {
    ZPP_RETURN_IF_ERROR(KeepSecondary(a));
  }
  return {};
}

Status UnitGatherer::KeepSecondary(int a) {
  if (!group_ || secondary_[static_cast<size_t>(a)].generation == generation_) return {};
  Secondary& secondary = secondary_[static_cast<size_t>(a)];
  const Vec whole = slab(a);
  const int64_t own = secondary.shard_elems[static_cast<size_t>(group_->rank())];
  ZPP_RETURN_IF_ERROR(Convert(AsConst(Slice(whole, secondary.first, own)),
                              {whole.dtype, secondary.data.data(), own}));
  secondary.generation = generation_;
  return {};
}

Status UnitGatherer::Release(int number) {
  Unit& unit = at(number);
  if (unit.users == 0) {
    return InvalidArgument("Release: unit " + std::to_string(number) + " is not gathered");
  }
  if (--unit.users > 0 || KeepForReuse(number)) return {};
  return Free(number);
}

// Its next use in this step is near enough, and there is room. A reuse distance of 0 keeps nothing.
bool UnitGatherer::KeepForReuse(int number) const {
  if (!follows_trace_ || live_elems_ > context_->config.max_live_elems) return false;
  int64_t distance_elems = 0;
  for (size_t i = position_; i < trace_.size(); ++i) {
    if (trace_[i] == number) return distance_elems < context_->config.max_reuse_distance_elems;
    distance_elems += units_[static_cast<size_t>(trace_[i])].elems;
  }
  return false;
}

Status UnitGatherer::Free(int number) {
  ZPP_RETURN_IF_ERROR(Finish(number));
  Unit& unit = at(number);
  if (unit.state == State::kAbsent) return {};
  for (const int a : context_->map.slabs_of_unit[static_cast<size_t>(number)]) {
    pool_.Give(std::move(data_[static_cast<size_t>(a)]));
  }
  unit.state = State::kAbsent;
  live_elems_ -= unit.elems;
  return {};
}

Status UnitGatherer::Poll() {
  for (Unit& unit : units_) {
    if (unit.state != State::kInFlight) continue;
    for (Work& work : unit.works) {
      if (work.Poll()) {
        if (const Status status = work.status(); !status.ok()) return status;
      }
    }
  }
  return {};
}

Status UnitGatherer::Drain() {
  for (size_t u = 0; u < units_.size(); ++u) ZPP_RETURN_IF_ERROR(Finish(static_cast<int>(u)));
  return {};
}

Status UnitGatherer::CheckReleased() const {
  for (size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].users == 0) continue;
    return InvalidArgument("unit " + std::to_string(u) +
                           " is still gathered: Release() it before its weights change");
  }
  return {};
}

Status UnitGatherer::Invalidate() {
  ZPP_RETURN_IF_ERROR(CheckReleased());
  ++generation_;
  for (size_t u = 0; u < units_.size(); ++u) ZPP_RETURN_IF_ERROR(Free(static_cast<int>(u)));
  return {};
}

Vec UnitGatherer::slab(int a) const {
  const Slab& slab = context_->slab(a);
  const int unit = slab.kind.unit;
  if (unit < 0 || units_[static_cast<size_t>(unit)].state != State::kLive) {
    return {slab.kind.compute, nullptr, 0};
  }
  return {slab.kind.compute, data_[static_cast<size_t>(a)].data(), slab.elems};
}

ErrorStats UnitGatherer::TakeStats() { return std::exchange(stats_, {}); }

std::vector<int64_t> UnitGatherer::secondary_bytes_sent() const {
  return group_ ? group_->traffic().sent_bytes : std::vector<int64_t>();
}

int64_t UnitGatherer::secondary_bytes() const {
  int64_t bytes = 0;
  for (const Secondary& secondary : secondary_)
    bytes += static_cast<int64_t>(secondary.data.size());
  return bytes;
}

}  // namespace zpp::internal
