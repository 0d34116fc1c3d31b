#include <algorithm>
#include <cstring>

#include "zero/compression.h"
#include "zero/internal/gradient_reducer.h"
#include "zero/internal/plain_math.h"

namespace zpp::internal {
namespace {

constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

FeedbackHops HopsOf(ErrorFeedbackMode mode) {
  return mode == ErrorFeedbackMode::kBoth ? FeedbackHops::kAll : FeedbackHops::kLast;
}

}  // namespace

Result<GradientReducer> GradientReducer::Create(const EngineContext* context) {
  GradientReducer reducer;
  reducer.context_ = context;
  reducer.buckets_of_param_.resize(context->params.size());
  reducer.added_.assign(context->params.size(), 0);
  for (int b = 0; b < context->num_buckets(); ++b) {
    Part part;
    part.bits = InitialGradientBits(context->config, context->kind(b));
    part.compressible = context->config.quantized_gradients && context->kind(b).compressed &&
                        context->kind(b).trainable && context->config.stage > 0;
    part.num_pieces = static_cast<int>(context->bucket(b).pieces.size());
    for (const ParamPiece& piece : context->bucket(b).pieces) {
      reducer.buckets_of_param_[static_cast<size_t>(piece.param)].push_back(b);
    }
    reducer.parts_.push_back(std::move(part));
  }
  const ErrorFeedbackMode mode = context->config.zero_pp.error_feedback;
  for (int b = 0; b < context->num_buckets(); ++b) {
    Part& part = reducer.parts_[Index(b)];
    if (!part.compressible || mode == ErrorFeedbackMode::kOff) continue;
    ZPP_ASSIGN_OR_RETURN(part.feedback, context->comm->MakeFeedback(
                                            DType::kF32, context->bucket(b).elems, reducer.Call(b),
                                            HopsOf(mode), context->config.zero_pp.residual));
  }
  return reducer;
}

CallOptions GradientReducer::Call(int bucket) const {
  return {.op = ReduceOp::kAvg,
          .policy = CollectivePolicy::Lossless(),
          .shard_elems = context_->bucket(bucket).shard_elems,
          .noise = {}};
}

void GradientReducer::BeginStep(const StepMode& mode) {
  mode_ = mode;
  micro_batch_ = 0;
  next_ = settled_ = 0;
  std::fill(added_.begin(), added_.end(), 0);
  for (Part& part : parts_) {
    part.missing = part.num_pieces;
    part.outer = part.inner = {};
    part.flushed_sq = 0;
  }
}

bool GradientReducer::untouched() const {
  return micro_batch_ == 0 &&
         std::all_of(added_.begin(), added_.end(), [](int added) { return added == 0; });
}

bool GradientReducer::ReducesNow() const {
  return context_->config.zero_pp.reduce_every_micro_batch ||
         micro_batch_ + 1 == context_->config.accumulation_steps;
}

// Zeros in the type that sums are kept in, padding included.
Status GradientReducer::PrepareSum(int bucket) {
  Part& part = parts_[Index(bucket)];
  if (!part.sum.empty() || context_->bucket(bucket).elems == 0) return {};
  ZPP_ASSIGN_OR_RETURN(part.sum, pool_.Take(context_->bucket(bucket).elems * kFloatBytes));
  std::memset(part.sum.data(), 0, part.sum.size());
  return {};
}

Status GradientReducer::Add(int param, const ConstVec& grad) {
  int& added = added_[static_cast<size_t>(param)];
  if (added > micro_batch_) {
    return InvalidArgument(
        "AddGradient: " + ToString(context_->params[static_cast<size_t>(param)]) +
        " was given a gradient twice in one micro-batch");
  }
  added = micro_batch_ + 1;
  for (const int b : buckets_of_param_[static_cast<size_t>(param)]) {
    ZPP_RETURN_IF_ERROR(PrepareSum(b));
    Part& part = parts_[Index(b)];
    const Vec sum = VecOf(FloatsOf(part.sum));
    // Parameters of a bucket lie in order, and each has one piece in it.
    const auto& pieces = context_->bucket(b).pieces;
    const auto piece =
        std::lower_bound(pieces.begin(), pieces.end(), param,
                         [](const ParamPiece& p, int wanted) { return p.param < wanted; });
    ZPP_RETURN_IF_ERROR(AddTo(Slice(sum, piece->bucket_first, piece->elems),
                              Slice(grad, piece->param_first, piece->elems)));
    --part.missing;
  }
  if (context_->config.overlap_comm && ReducesNow()) ZPP_RETURN_IF_ERROR(StartReady());
  return Poll();
}

Status GradientReducer::StartReady() {
  const auto& order = context_->map.reduce_order;
  while (next_ < order.size() && parts_[Index(order[next_])].missing == 0) {
    ZPP_RETURN_IF_ERROR(Start(order[next_++]));
  }
  return {};
}

Status GradientReducer::StartAll() {
  const auto& order = context_->map.reduce_order;
  while (next_ < order.size()) ZPP_RETURN_IF_ERROR(Start(order[next_++]));
  return {};
}

Status GradientReducer::EndMicroBatch() {
  if (ReducesNow()) ZPP_RETURN_IF_ERROR(StartAll());
  const bool last = ++micro_batch_ == context_->config.accumulation_steps;
  if (last) return {};
  if (context_->config.zero_pp.reduce_every_micro_batch) {
    ZPP_RETURN_IF_ERROR(Finish());
    next_ = settled_ = 0;
  }
  for (Part& part : parts_) part.missing = part.num_pieces;
  return {};
}

// Where the reduction of the bucket goes: the shard, or beside it when it must be added.
std::span<float> GradientReducer::TargetOf(int bucket) {
  Part& part = parts_[Index(bucket)];
  return FloatsOf(part.micro_target ? part.micro_shard : part.shard);
}

Status GradientReducer::Start(int bucket) {
  if (context_->bucket(bucket).elems == 0) return {};
  ZPP_RETURN_IF_ERROR(PrepareSum(bucket));
  Part& part = parts_[Index(bucket)];
  const int64_t own_bytes = context_->Own(bucket).elems * kFloatBytes;
  const bool stage0 = context_->config.stage == 0;
  if (!stage0 && part.shard.size() != static_cast<size_t>(own_bytes)) {
    ZPP_ASSIGN_OR_RETURN(part.shard, Buffer::Allocate(static_cast<size_t>(own_bytes)));
  }
  part.micro_target =
      !stage0 && context_->config.zero_pp.reduce_every_micro_batch && micro_batch_ > 0;
  if (part.micro_target) {
    ZPP_ASSIGN_OR_RETURN(part.micro_shard, pool_.Take(own_bytes));
  }
  if (mode_.truth) ZPP_RETURN_IF_ERROR(CompareWithTruth(bucket));
  const bool encodes = part.compressible && part.bits < 16 && !mode_.exact;
  if (encodes) return StartCompressed(bucket, TargetOf(bucket));
  ZPP_RETURN_IF_ERROR(StartPlain(bucket, stage0 ? FloatsOf(part.sum) : TargetOf(bucket)));
  return StartFlush(bucket);
}

Status GradientReducer::StartCompressed(int bucket, std::span<float> out) {
  Part& part = parts_[Index(bucket)];
  CallOptions call = Call(bucket);
  call.policy = GradientPolicy(context_->config, context_->kind(bucket), part.bits);
  call.noise = context_->Noise(NoiseUse::kGradients, bucket,
                               mode_.step * context_->config.accumulation_steps + micro_batch_);
  call.stats = &part.inner;
  call.last_hop_stats = &part.outer;
  if (part.feedback.elems() > 0) {
    call.feedback = &part.feedback;
    part.owes = true;
  }
  part.work = context_->comm->StartReduceScatter(VecOf(std::span<const float>(FloatsOf(part.sum))),
                                                 VecOf(out), call);
  return part.work->Poll() ? part.work->status() : Status();
}

// In the type that gradients travel in; in place there. Settle() brings it back.
Status GradientReducer::StartPlain(int bucket, std::span<float> out) {
  Part& part = parts_[Index(bucket)];
  const bool sixteen = part.compressible && part.bits == 16 && !mode_.exact &&
                       context_->config.zero_pp.quant_bits < 16;
  const DType type = GradientType(context_->config, context_->kind(bucket), sixteen);
  const std::span<float> sum = FloatsOf(part.sum);
  Vec in = VecOf(sum), to = VecOf(out);
  if (type != DType::kF32) {
    ZPP_ASSIGN_OR_RETURN(part.wire, pool_.Take(in.elems * SizeOf(type)));
    part.wire_type = type;
    const Vec wire{type, part.wire.data(), in.elems};
    ZPP_RETURN_IF_ERROR(Convert(AsConst(in), wire));
    const ElemRange own = context_->Own(bucket);
    in = wire;
    to = Slice(wire, own.first, own.elems);
  }
  part.work = context_->config.stage == 0
                  ? context_->comm->StartAllReduce(AsConst(in), to, Call(bucket))
                  : context_->comm->StartReduceScatter(AsConst(in), to, Call(bucket));
  return part.work->Poll() ? part.work->status() : Status();
}

Status GradientReducer::Settle(int bucket) {
  Part& part = parts_[Index(bucket)];
  if (!part.work) return {};
  ZPP_RETURN_IF_ERROR(part.work->Wait(context_->Patience()));
  part.work.reset();
  const bool stage0 = context_->config.stage == 0;
  const std::span<float> target = stage0 ? FloatsOf(part.sum) : TargetOf(bucket);
  if (!part.wire.empty()) {
    const ElemRange own = context_->Own(bucket);
    const ConstVec wire{part.wire_type, part.wire.data(), context_->bucket(bucket).elems};
    ZPP_RETURN_IF_ERROR(Convert(Slice(wire, own.first, own.elems), VecOf(target)));
    pool_.Give(std::move(part.wire));
  }
  if (!stage0) pool_.Give(std::move(part.sum));
  for (Flush& flush : part.flushes) {
    ZPP_RETURN_IF_ERROR(flush.work.Wait(context_->Patience()));
    if (mode_.exact) {
      for (const float value : FloatsOf(flush.arrived)) {
        part.flushed_sq += static_cast<double>(value) * value;
      }
    }
    ZPP_RETURN_IF_ERROR(
        AddTo(VecOf(target), VecOf(std::span<const float>(FloatsOf(flush.arrived)))));
    pool_.Give(std::move(flush.owed));
    pool_.Give(std::move(flush.arrived));
  }
  part.flushes.clear();
  if (part.micro_target) {
    ZPP_RETURN_IF_ERROR(AddTo(VecOf(FloatsOf(part.shard)), VecOf(std::span<const float>(target))));
    pool_.Give(std::move(part.micro_shard));
  }
  return {};
}

Status GradientReducer::Poll() {
  const auto& order = context_->map.reduce_order;
  while (settled_ < next_) {
    const Part& part = parts_[Index(order[settled_])];
    if (part.work && !Work(*part.work).Poll()) return {};
    ZPP_RETURN_IF_ERROR(Settle(order[settled_++]));
  }
  return {};
}

Status GradientReducer::Finish() {
  const auto& order = context_->map.reduce_order;
  while (settled_ < next_) ZPP_RETURN_IF_ERROR(Settle(order[settled_++]));
  return {};
}

void GradientReducer::EndStep() {
  for (Part& part : parts_) {
    pool_.Give(std::move(part.sum));
    pool_.Give(std::move(part.truth));
    pool_.Give(std::move(part.shadow));
  }
}

std::span<float> GradientReducer::gradient(int bucket) const {
  const Part& part = parts_[Index(bucket)];
  return FloatsOf(context_->config.stage == 0 ? part.sum : part.shard);
}
std::span<float> GradientReducer::truth(int bucket) const {
  return FloatsOf(parts_[Index(bucket)].truth);
}
std::span<float> GradientReducer::received(int bucket) const {
  const Part& part = parts_[Index(bucket)];
  return part.shadow.empty() ? gradient(bucket) : FloatsOf(part.shadow);
}

int64_t GradientReducer::shard_bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts_) bytes += static_cast<int64_t>(part.shard.size());
  return bytes;
}

int64_t GradientReducer::residual_bytes() const {
  int64_t bytes = 0;
  for (const Part& part : parts_) bytes += part.feedback.bytes();
  return bytes;
}

}  // namespace zpp::internal
