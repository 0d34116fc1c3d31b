#include "collectives/arguments.h"

#include <limits>
#include <string>

namespace zpp {
namespace {

constexpr int64_t kMaxElems = std::numeric_limits<int64_t>::max() / 16;

class Checker {
 public:
  Checker(CollectiveKind kind, const Caller& caller) : kind_(kind), caller_(caller) {}

  Status Fail(const std::string& sentence) const {
    return InvalidArgument(std::string(CollectiveName(kind_)) + ": " + sentence);
  }

  Status Vector(const char* name, const void* data, int64_t elems, DType dtype) const {
    if (dtype > DType::kByte) return Fail(std::string(name) + " has a type that zpp does not know");
    if (elems < 0) return Fail(std::string(name) + " has " + std::to_string(elems) + " elements");
    if (elems > kMaxElems) {
      return Fail(std::string(name) + " has " + std::to_string(elems) +
                  " elements, more than can be addressed");
    }
    if (data == nullptr && elems > 0) {
      return Fail(std::string(name) + " is null but has " + std::to_string(elems) + " elements");
    }
    return {};
  }

  Status Vectors(const ConstVec& in, const Vec& out) const {
    ZPP_RETURN_IF_ERROR(Vector("in", in.data, in.elems, in.dtype));
    ZPP_RETURN_IF_ERROR(Vector("out", out.data, out.elems, out.dtype));
    if (in.dtype == out.dtype) return {};
    return Fail("in is " + std::string(DTypeName(in.dtype)) + " but out is " +
                std::string(DTypeName(out.dtype)));
  }

  Status Reduces(DType dtype) const {
    if (caller_.call.op != ReduceOp::kSum && caller_.call.op != ReduceOp::kAvg) {
      return Fail("op is neither sum nor avg");
    }
    if (IsFloat(dtype)) return {};
    return Fail("elements of type byte cannot be summed; fp32, fp16 or bf16 can");
  }

  // Only a policy that this very call asks for is an error; a default simply does not apply.
  Status Compresses(DType dtype) const {
    const auto& policy = caller_.call.policy;
    if (!policy) return {};
    const Status valid = Validate(*policy);
    if (!valid.ok()) return Fail(valid.message());
    if (policy->lossless() || IsFloat(dtype)) return {};
    return Fail("elements of type byte cannot be compressed; fp32, fp16 or bf16 can");
  }

  Status Shards(int64_t whole) const {
    const auto shards = caller_.call.shard_elems;
    if (shards.empty()) return {};
    if (static_cast<int64_t>(shards.size()) != caller_.world) {
      return Fail("shard_elems has " + std::to_string(shards.size()) + " entries for " +
                  std::to_string(caller_.world) + " ranks");
    }
    int64_t sum = 0;
    for (size_t r = 0; r < shards.size(); ++r) {
      if (shards[r] < 0 || shards[r] > kMaxElems - sum) {
        return Fail("shard_elems[" + std::to_string(r) + "] is " + std::to_string(shards[r]));
      }
      sum += shards[r];
    }
    if (sum == whole) return {};
    return Fail("the shards have " + std::to_string(sum) + " elements, the whole vector " +
                std::to_string(whole));
  }

  Status Divides(int64_t elems) const {
    if (elems % caller_.world == 0) return {};
    return Fail(std::to_string(elems) + " elements do not divide among " +
                std::to_string(caller_.world) + " ranks");
  }

  Status NoFeedback() const {
    return caller_.call.feedback == nullptr ? Status() : Fail("takes no feedback");
  }

  Status NoShards() const {
    return caller_.call.shard_elems.empty() ? Status() : Fail("takes no shard_elems");
  }

  // The own shard must have `shard` elements of `whole`.
  Status OwnShard(const char* name, int64_t shard, int64_t whole) const {
    ZPP_RETURN_IF_ERROR(Shards(whole));
    const auto shards = caller_.call.shard_elems;
    if (!shards.empty()) {
      const int64_t own = shards[static_cast<size_t>(caller_.rank)];
      if (own == shard) return {};
      return Fail(std::string(name) + " has " + std::to_string(shard) +
                  " elements, this rank's shard " + std::to_string(own));
    }
    if (whole % caller_.world == 0 && whole / caller_.world == shard) return {};
    return Fail("a shard of " + std::to_string(shard) + " elements on each of " +
                std::to_string(caller_.world) + " ranks does not make a vector of " +
                std::to_string(whole) + "; shard_elems allows unequal shards");
  }

  int64_t OwnOffset(int64_t shard) const {
    const auto shards = caller_.call.shard_elems;
    if (shards.empty()) return shard * caller_.rank;
    int64_t offset = 0;
    for (int r = 0; r < caller_.rank; ++r) offset += shards[static_cast<size_t>(r)];
    return offset;
  }

  // `place`: where in `whole` the other buffer lies when the call is in place.
  Status Overlap(const ConstVec& part, const ConstVec& whole, int64_t place_elems) const {
    if (part.elems == 0 || whole.elems == 0) return {};
    const int64_t size = SizeOf(part.dtype);
    const auto a = reinterpret_cast<uintptr_t>(part.data);
    const auto b = reinterpret_cast<uintptr_t>(whole.data);
    const auto a_bytes = static_cast<uintptr_t>(part.elems * size);
    const auto b_bytes = static_cast<uintptr_t>(whole.elems * size);
    const bool in_place = place_elems >= 0 && a == b + static_cast<uintptr_t>(place_elems * size);
    if (in_place || a + a_bytes <= b || b + b_bytes <= a) return {};
    return Fail(place_elems < 0 ? "in and out overlap, and there is no in-place form"
                                : "in and out overlap without being in place");
  }

 private:
  CollectiveKind kind_;
  const Caller& caller_;
};

ConstVec Const(const Vec& v) { return {v.dtype, v.data, v.elems}; }

}  // namespace

Result<CallArguments> CheckAllGather(const Caller& caller, const ConstVec& in, const Vec& out) {
  const Checker check(CollectiveKind::kAllGather, caller);
  ZPP_RETURN_IF_ERROR(check.NoFeedback());
  ZPP_RETURN_IF_ERROR(check.Vectors(in, out));
  ZPP_RETURN_IF_ERROR(check.Compresses(in.dtype));
  ZPP_RETURN_IF_ERROR(check.OwnShard("in", in.elems, out.elems));
  ZPP_RETURN_IF_ERROR(check.Overlap(in, Const(out), check.OwnOffset(in.elems)));
  return CallArguments{CollectiveKind::kAllGather, in.dtype, out.elems, 0, in.data, out.data};
}

Result<CallArguments> CheckReduceScatter(const Caller& caller, const ConstVec& in, const Vec& out) {
  const Checker check(CollectiveKind::kReduceScatter, caller);
  ZPP_RETURN_IF_ERROR(check.Vectors(in, out));
  ZPP_RETURN_IF_ERROR(check.Reduces(in.dtype));
  ZPP_RETURN_IF_ERROR(check.Compresses(in.dtype));
  ZPP_RETURN_IF_ERROR(check.OwnShard("out", out.elems, in.elems));
  ZPP_RETURN_IF_ERROR(check.Overlap(Const(out), in, check.OwnOffset(out.elems)));
  return CallArguments{CollectiveKind::kReduceScatter, in.dtype, in.elems, 0, in.data, out.data};
}

Result<CallArguments> CheckAllReduce(const Caller& caller, const ConstVec& in, const Vec& out) {
  const Checker check(CollectiveKind::kAllReduce, caller);
  ZPP_RETURN_IF_ERROR(check.Vectors(in, out));
  ZPP_RETURN_IF_ERROR(check.Reduces(in.dtype));
  ZPP_RETURN_IF_ERROR(check.Compresses(in.dtype));
  if (in.elems != out.elems) {
    return check.Fail("in has " + std::to_string(in.elems) + " elements but out has " +
                      std::to_string(out.elems));
  }
  ZPP_RETURN_IF_ERROR(check.Shards(in.elems));
  ZPP_RETURN_IF_ERROR(check.Overlap(in, Const(out), 0));
  return CallArguments{CollectiveKind::kAllReduce, in.dtype, in.elems, 0, in.data, out.data};
}

Result<CallArguments> CheckAllToAll(const Caller& caller, const ConstVec& in, const Vec& out) {
  const Checker check(CollectiveKind::kAllToAll, caller);
  ZPP_RETURN_IF_ERROR(check.NoFeedback());
  ZPP_RETURN_IF_ERROR(check.Vectors(in, out));
  ZPP_RETURN_IF_ERROR(check.NoShards());
  if (in.elems != out.elems) {
    return check.Fail("in has " + std::to_string(in.elems) + " elements but out has " +
                      std::to_string(out.elems));
  }
  ZPP_RETURN_IF_ERROR(check.Divides(in.elems));
  ZPP_RETURN_IF_ERROR(check.Overlap(in, Const(out), -1));
  return CallArguments{CollectiveKind::kAllToAll, in.dtype, in.elems, 0, in.data, out.data};
}

Result<CallArguments> CheckBroadcast(const Caller& caller, const Vec& data, int root) {
  const Checker check(CollectiveKind::kBroadcast, caller);
  ZPP_RETURN_IF_ERROR(check.NoFeedback());
  ZPP_RETURN_IF_ERROR(check.Vector("data", data.data, data.elems, data.dtype));
  ZPP_RETURN_IF_ERROR(check.NoShards());
  if (root < 0 || root >= caller.world) {
    return check.Fail("root is " + std::to_string(root) + " but there are ranks 0 to " +
                      std::to_string(caller.world - 1));
  }
  return CallArguments{
      CollectiveKind::kBroadcast, data.dtype, data.elems, root, data.data, data.data};
}

Result<CallArguments> CheckBarrier(const Caller& caller) {
  const Checker check(CollectiveKind::kBarrier, caller);
  ZPP_RETURN_IF_ERROR(check.NoFeedback());
  ZPP_RETURN_IF_ERROR(check.NoShards());
  return CallArguments{};
}

Result<CallArguments> CheckShape(const Caller& caller, const CallArguments& shape) {
  static std::byte nowhere{};  // stands for a buffer that is never touched
  const Checker check(shape.kind, caller);
  ZPP_RETURN_IF_ERROR(check.Vector("the vector", &nowhere, shape.elems, shape.dtype));
  switch (shape.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
      ZPP_RETURN_IF_ERROR(shape.kind == CollectiveKind::kReduceScatter ? check.Reduces(shape.dtype)
                                                                       : check.NoFeedback());
      ZPP_RETURN_IF_ERROR(check.Compresses(shape.dtype));
      ZPP_RETURN_IF_ERROR(check.Shards(shape.elems));
      if (!caller.call.shard_elems.empty()) return shape;
      ZPP_RETURN_IF_ERROR(check.OwnShard("the shard", shape.elems / caller.world, shape.elems));
      return shape;
    case CollectiveKind::kAllReduce:
      ZPP_RETURN_IF_ERROR(check.Reduces(shape.dtype));
      ZPP_RETURN_IF_ERROR(check.Compresses(shape.dtype));
      ZPP_RETURN_IF_ERROR(check.Shards(shape.elems));
      return shape;
    case CollectiveKind::kAllToAll:
      ZPP_RETURN_IF_ERROR(check.NoFeedback());
      ZPP_RETURN_IF_ERROR(check.NoShards());
      ZPP_RETURN_IF_ERROR(check.Divides(shape.elems));
      return shape;
    case CollectiveKind::kBroadcast:
      return CheckBroadcast(caller, {shape.dtype, &nowhere, shape.elems}, shape.root);
    case CollectiveKind::kBarrier:
      return CheckBarrier(caller);
  }
  return shape;
}

Status CheckFeedback(const CallArguments& args, const ReduceFeedback& feedback, uint64_t shape) {
  if (feedback.shape() == shape) return {};
  const std::string call = std::string(CollectiveName(args.kind)) + ": the feedback ";
  if (feedback.elems() != args.elems) {
    return InvalidArgument(call + "was made for " + std::to_string(feedback.elems()) +
                           " elements, this vector has " + std::to_string(args.elems));
  }
  return InvalidArgument(call +
                         "was made for another communicator, or another op, shard_elems or flat");
}

Partition PartitionOf(const CallArguments& args, std::span<const int64_t> shard_elems, int world,
                      int64_t grid_elems) {
  if (!shard_elems.empty()) return Partition::Sized(shard_elems, grid_elems);
  switch (args.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter: {
      const std::vector<int64_t> equal(static_cast<size_t>(world), args.elems / world);
      return Partition::Sized(equal, grid_elems);
    }
    case CollectiveKind::kAllReduce:
      return Partition::Even(args.elems, world, grid_elems);
    case CollectiveKind::kAllToAll:
      return Partition::Pairwise(args.elems / world, world, grid_elems);
    case CollectiveKind::kBroadcast:
      return Partition::Even(args.elems, 1, grid_elems);
    case CollectiveKind::kBarrier:
      return Partition::Even(0, 1, grid_elems);
  }
  return {};
}

}  // namespace zpp
