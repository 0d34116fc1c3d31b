#include "quant/error_feedback.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "quant/codec_math.h"
#include "quant/codec_tile.h"

namespace zpp {
namespace {

static_assert(kTile_elems == kFeedbackTile_elems);

// Below this a residual is dropped: far below anything an optimizer sees, far above the subnormals,
// where products of scales and factors lose their meaning.
constexpr float kSmallestResidual = 0x1p-100f;

QuantSpec StoreSpec(ResidualType type, int32_t block_elems) {
  switch (type) {
    case ResidualType::kF32:
      return QuantSpec::None(DType::kF32);
    case ResidualType::kBF16:
      return QuantSpec::None(DType::kBF16);
    case ResidualType::kInt8:
      return QuantSpec::Int8(block_elems);
  }
  return QuantSpec::None();
}

int64_t StoreBytes(const QuantSpec& spec, int64_t elems) {
  return elems / kTile_elems * PayloadBytes(spec, kTile_elems) +
         PayloadBytes(spec, elems % kTile_elems);
}

bool Keeps(float residual) {
  const float magnitude = std::fabs(residual);
  return magnitude >= kSmallestResidual && magnitude <= kLargestF32;  // false for NaN
}

}  // namespace

Result<ErrorFeedback> ErrorFeedback::Create(int64_t elems, ResidualType type, int32_t block_elems) {
  if (elems < 0 || elems > kMaxWire_elems) {
    return InvalidArgument("error feedback of " + std::to_string(elems) + " elements");
  }
  const QuantSpec spec = StoreSpec(type, block_elems);
  ZPP_RETURN_IF_ERROR(Validate(spec));
  ZPP_ASSIGN_OR_RETURN(Buffer store,
                       Buffer::Allocate(static_cast<size_t>(StoreBytes(spec, elems))));
  ErrorFeedback feedback;
  feedback.elems_ = elems;
  feedback.type_ = type;
  feedback.spec_ = spec;
  feedback.store_ = std::move(store);
  feedback.factors_.resize(static_cast<size_t>((elems + kTile_elems - 1) / kTile_elems));
  feedback.Drop();
  return feedback;
}

Status ErrorFeedback::CheckElems(int64_t elems) const {
  if (elems == elems_) return {};
  return InvalidArgument("error feedback of " + std::to_string(elems_) +
                         " elements met a vector of " + std::to_string(elems));
}

// All bytes zero decode to zeros in each of the types.
void ErrorFeedback::Drop() {
  if (!store_.empty()) std::memset(store_.data(), 0, store_.size());
  std::fill(factors_.begin(), factors_.end(), 1.0f);
}

Status ErrorFeedback::Scale(float factor) {
  if (!std::isfinite(factor)) return InvalidArgument("error feedback: a factor must be finite");
  for (float& tile : factors_) {
    const float product = tile * factor;
    tile = Keeps(product) ? product : 0.0f;
  }
  return {};
}

std::span<std::byte> ErrorFeedback::Tile(int64_t at, int64_t elems) const {
  return store_.span().subspan(static_cast<size_t>(StoreBytes(spec_, at)),
                               static_cast<size_t>(PayloadBytes(spec_, elems)));
}

void ErrorFeedback::LoadTile(int64_t at, float factor, std::span<float> out) const {
  const int64_t elems = static_cast<int64_t>(out.size());
  const Status decoded = Decode(spec_, Tile(at, elems), {DType::kF32, out.data(), elems});
  for (float& residual : out) {
    const float scaled = decoded.ok() ? residual * factor : 0.0f;
    residual = Keeps(scaled) ? scaled : 0.0f;
  }
}

void ErrorFeedback::StoreTile(int64_t at, std::span<float> values) {
  for (float& value : values) value = Keeps(value) ? value : 0.0f;
  const int64_t elems = static_cast<int64_t>(values.size());
  const TileTarget target{spec_, Tile(at, elems), elems, {}};
  ClearPadding(target);
  EncodeTile(target, 0, values);
  factors_[static_cast<size_t>(at / kTile_elems)] = 1;
}

Status ErrorFeedback::CheckRun(int64_t first, int64_t elems) const {
  const bool inside = first >= 0 && first <= elems_ && elems >= 0 && elems <= elems_ - first;
  const bool ends = inside && (elems == elems_ - first || elems % kTile_elems == 0);
  if (ends && first % kTile_elems == 0) return {};
  return InvalidArgument("error feedback: " + std::to_string(elems) + " elements from " +
                         std::to_string(first) + " of " + std::to_string(elems_) +
                         " are no run of whole tiles");
}

Status ErrorFeedback::Encode(const QuantSpec& spec, int64_t first, ConstVec x,
                             std::span<std::byte> payload, const NoiseKey& noise,
                             ErrorStats* stats) {
  ZPP_RETURN_IF_ERROR(CheckRun(first, x.elems));
  if (!IsFloat(x.dtype)) return InvalidArgument("error feedback: only fp32, fp16 and bf16");
  if (x.elems > 0 && x.data == nullptr) return InvalidArgument("error feedback: null data");
  const Operand only{
      QuantSpec::None(x.dtype),
      {static_cast<const std::byte*>(x.data), static_cast<size_t>(x.elems * SizeOf(x.dtype))}};
  return Reduce({.in = {&only, 1}, .elems = x.elems, .out_spec = spec, .noise = noise}, first,
                payload, stats);
}

Status ErrorFeedback::Reduce(const ReduceArgs& args, int64_t first, std::span<std::byte> payload,
                             ErrorStats* stats) {
  ZPP_RETURN_IF_ERROR(CheckRun(first, args.elems));
  ZPP_RETURN_IF_ERROR(CheckReduce(args, payload));
  const TileTarget target{args.out_spec, payload, args.elems, args.noise};
  ClearPadding(target);
  alignas(64) float sums[kTile_elems];
  alignas(64) float losses[kTile_elems];
  for (int64_t at = 0; at < args.elems; at += kTile_elems) {
    const size_t elems = static_cast<size_t>(std::min(kTile_elems, args.elems - at));
    const std::span<float> sum(sums, elems);
    const std::span<float> loss(losses, elems);
    LoadTile(first + at, factor(first + at), loss);
    SumTile(args, at, sum);
    for (size_t i = 0; i < elems; ++i) sum[i] += loss[i];
    EncodeTile(target, at, sum, losses, stats);
    for (size_t i = 0; i < elems; ++i) loss[i] = sum[i] - loss[i];
    StoreTile(first + at, loss);
  }
  return {};
}

Status ErrorFeedback::Flush(std::span<float> x) {
  ZPP_RETURN_IF_ERROR(CheckElems(static_cast<int64_t>(x.size())));
  alignas(64) float residual[kTile_elems];
  for (size_t at = 0; at < x.size(); at += kTile_elems) {
    const size_t elems = std::min<size_t>(kTile_elems, x.size() - at);
    const auto elem = static_cast<int64_t>(at);
    LoadTile(elem, factor(elem), {residual, elems});
    for (size_t i = 0; i < elems; ++i) x[at + i] += residual[i];
  }
  Drop();
  return {};
}

Status ErrorFeedback::ReadTimes(std::span<float> out, bool scaled) const {
  ZPP_RETURN_IF_ERROR(CheckElems(static_cast<int64_t>(out.size())));
  for (size_t at = 0; at < out.size(); at += kTile_elems) {
    const auto elem = static_cast<int64_t>(at);
    LoadTile(elem, scaled ? factor(elem) : 1.0f,
             out.subspan(at, std::min<size_t>(kTile_elems, out.size() - at)));
  }
  return {};
}

Status ErrorFeedback::Read(std::span<float> out) const { return ReadTimes(out, true); }
Status ErrorFeedback::ReadUnscaled(std::span<float> out) const { return ReadTimes(out, false); }

Result<ErrorFeedback> ErrorFeedback::Clone() const {
  ErrorFeedback copy;
  copy.elems_ = elems_;
  copy.type_ = type_;
  copy.spec_ = spec_;
  copy.factors_ = factors_;
  ZPP_ASSIGN_OR_RETURN(copy.store_, Buffer::Allocate(store_.size()));
  if (!store_.empty()) std::memcpy(copy.store_.data(), store_.data(), store_.size());
  return copy;
}

Status ErrorFeedback::Write(std::span<const float> in) {
  ZPP_RETURN_IF_ERROR(CheckElems(static_cast<int64_t>(in.size())));
  alignas(64) float tile[kTile_elems];
  for (size_t at = 0; at < in.size(); at += kTile_elems) {
    const size_t elems = std::min<size_t>(kTile_elems, in.size() - at);
    std::copy_n(in.data() + at, elems, tile);
    StoreTile(static_cast<int64_t>(at), {tile, elems});
  }
  return {};
}

}  // namespace zpp
