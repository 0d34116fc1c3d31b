#include <algorithm>
#include <cstring>

#include "zero/internal/owned_state.h"
#include "zero/internal/plain_math.h"

namespace zpp::internal {
namespace {

struct StateArrays {
  bool m = false, v = false;
};

StateArrays ArraysOf(const ZeroConfig& config) {
  switch (config.optimizer) {
    case OptimizerType::kAdam:
    case OptimizerType::kAdamW:
      return {.m = true, .v = true};
    case OptimizerType::kSgd:
      return {.m = config.sgd.momentum != 0, .v = false};
  }
  return {};
}

HostMemory MemoryKind(const OffloadConfig& offload) {
  if (!offload.enabled) return HostMemory::kHeap;
  return offload.pin_memory ? HostMemory::kPinned : HostMemory::kHugePages;
}

// Bytes of the weights that stage 3 keeps apart from the master.
int64_t ShardWeightBytes(const EngineContext& context, int b) {
  const SlabKind& kind = context.kind(b);
  if (kind.unit < 0 || (kind.trainable && kind.compute == DType::kF32)) return 0;
  const int64_t bytes = context.Own(b).elems * SizeOf(kind.compute);
  return (bytes + 63) / 64 * 64;
}

}  // namespace

Status ValidateOptimizer(const ZeroConfig& config) {
  switch (config.optimizer) {
    case OptimizerType::kAdam:
    case OptimizerType::kAdamW:
      return Validate(config.adam);
    case OptimizerType::kSgd:
      return Validate(config.sgd);
  }
  return Internal("no such optimizer");
}

Result<OwnedState> OwnedState::Create(const EngineContext& context) {
  const StateArrays arrays = ArraysOf(context.config);
  const size_t per_bucket = 1 + (arrays.m ? 1 : 0) + (arrays.v ? 1 : 0);
  size_t capacity = 0, weights_bytes = 0;
  for (int b = 0; b < context.num_buckets(); ++b) {
    if (context.kind(b).trainable) {
      capacity += per_bucket * HostArena::PieceBytesOfFloats(context.Own(b).elems);
    }
    weights_bytes += static_cast<size_t>(ShardWeightBytes(context, b));
  }
  OwnedState state;
  ZPP_ASSIGN_OR_RETURN(state.arena_,
                       HostArena::Create(MemoryKind(context.config.offload_optimizer), capacity));
  ZPP_ASSIGN_OR_RETURN(state.weights_, Buffer::Allocate(weights_bytes));
  if (weights_bytes > 0) std::memset(state.weights_.data(), 0, weights_bytes);

  std::byte* weights = state.weights_.data();
  for (int b = 0; b < context.num_buckets(); ++b) {
    const SlabKind& kind = context.kind(b);
    const int64_t elems = context.Own(b).elems;
    Part part;
    if (kind.trainable) {
      ZPP_ASSIGN_OR_RETURN(part.master, state.arena_.AllocateFloats(elems));
      if (arrays.m) {
        ZPP_ASSIGN_OR_RETURN(part.m, state.arena_.AllocateFloats(elems));
      }
      if (arrays.v) {
        ZPP_ASSIGN_OR_RETURN(part.v, state.arena_.AllocateFloats(elems));
      }
      state.optimizer_bytes_ += static_cast<int64_t>(per_bucket * sizeof(float)) * elems;
    }
    if (const int64_t bytes = ShardWeightBytes(context, b); bytes > 0) {
      part.weights = {kind.compute, weights, elems};
      weights += bytes;
    } else if (kind.unit >= 0) {
      // The master, which is fp32 then; or nothing, in the slab's type, where the shard is empty.
      part.weights = {kind.compute, part.master.data(), elems};
    }
    state.parts_.push_back(part);
  }
  return state;
}

Status OwnedState::Update(const EngineContext& context, int bucket, int64_t step, float grad_scale,
                          std::span<const float> grad, const Vec& weights_out) const {
  const Part& part = parts_[Index(bucket)];
  const auto total = static_cast<int64_t>(part.master.size());
  const Vec shard = part.weights.data == part.master.data() ? Vec{} : part.weights;
  const Vec out = weights_out.elems > 0 ? weights_out : shard;
  const int64_t tile = std::max<int64_t>(context.config.sub_group_elems, 4096);
  for (int64_t at = 0; at < total; at += tile) {
    const auto first = static_cast<size_t>(at);
    const auto elems = static_cast<size_t>(std::min(tile, total - at));
    const auto cut = [&](std::span<float> all) {
      return all.empty() ? all : all.subspan(first, elems);
    };
    const Vec to = out.elems > 0 ? Slice(out, at, static_cast<int64_t>(elems)) : Vec{};
    switch (context.config.optimizer) {
      case OptimizerType::kAdam:
      case OptimizerType::kAdamW:
        ZPP_RETURN_IF_ERROR(AdamStep(context.config.adam, step, grad_scale,
                                     {.master = cut(part.master),
                                      .m = cut(part.m),
                                      .v = cut(part.v),
                                      .grad = grad.subspan(first, elems),
                                      .weights_out = to}));
        break;
      case OptimizerType::kSgd:
        ZPP_RETURN_IF_ERROR(SgdStep(context.config.sgd, step, grad_scale,
                                    {.master = cut(part.master),
                                     .momentum = cut(part.m),
                                     .grad = grad.subspan(first, elems),
                                     .weights_out = to}));
        break;
    }
  }
  return {};
}

}  // namespace zpp::internal
