// Bounds: how wrong a decoded value may be, and whether a payload is one that Encode writes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "quant/codec.h"
#include "quant/codec_math.h"

namespace zpp {
namespace {

float PlainBound(DType plain, float absmax) {
  switch (plain) {
    case DType::kF32:
    case DType::kByte:
      return 0;
    case DType::kF16:
      return absmax < 65520.0f ? std::max(absmax * 0x1p-11f, 0x1p-25f) : FloatOf(kInfinityBits);
    case DType::kBF16:
      return BitsOf(absmax) < 0x7f7f8000u ? std::max(absmax * 0x1p-8f, 0x1p-134f)
                                          : FloatOf(kInfinityBits);
  }
  return 0;
}

// Widest distance between neighbouring levels, in units of the scale.
float WidestGap(const QuantSpec& spec) {
  if (spec.code == Code::kLinear) return 1;
  return spec.rounding == Rounding::kNearest ? 15 : 13;  // 64 - 49, 49 - 36
}

// Scale bits as Encode writes them: zero, the one NaN, or a number whose values are all finite and
// not tiny.
bool PossibleScale(const QuantSpec& spec, uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (bits == 0 || bits == kScaleNaNBits) return true;
  if ((bits & ((1u << DroppedScaleBits(spec.scale_type)) - 1u)) != 0) return false;
  const bool may_be_negative = spec.format == Format::kInt4 && spec.rounding == Rounding::kNearest;
  if (bits != magnitude && !may_be_negative) return false;
  if (magnitude >= kInfinityBits || FloatOf(magnitude) < kMinScale) return false;
  return FloatOf(magnitude) * TopLevel(spec) <= kLargestF32;
}

uint32_t ScaleBits(const QuantSpec& spec, const std::byte* scales, int64_t block) {
  if (spec.scale_type == ScaleType::kF32) {
    uint32_t bits;
    std::memcpy(&bits, scales + block * 4, 4);
    return bits;
  }
  uint16_t half;
  std::memcpy(&half, scales + block * 2, 2);
  return static_cast<uint32_t>(half) << 16;
}

// The code that Encode never writes, as the byte or nibble that would hold it; -1 when every one is
// possible.
int ImpossibleCode(const QuantSpec& spec) {
  if (spec.format == Format::kInt8) return 0x80;
  return spec.rounding == Rounding::kStochastic ? 0x8 : -1;
}

// Codes [begin, end) of one block, which starts at an even element.
bool PossibleCodes(const QuantSpec& spec, const std::byte* codes, int64_t begin, int64_t end,
                   bool all_zero) {
  const int impossible = ImpossibleCode(spec);
  if (spec.format == Format::kInt8) {
    return std::all_of(codes + begin, codes + end, [&](std::byte code) {
      return all_zero ? code == std::byte{0} : std::to_integer<int>(code) != impossible;
    });
  }
  for (int64_t i = begin; i < end; i += 2) {
    const int byte = std::to_integer<int>(codes[i / 2]);
    if (all_zero && byte != 0) return false;
    if ((byte & 15) == impossible || byte >> 4 == impossible) return false;
    if (i + 1 == end && byte >> 4 != 0) return false;  // the unused half of the last byte
  }
  return true;
}

}  // namespace

float ErrorBound(const QuantSpec& spec, float absmax) {
  if (!spec.compressed()) return PlainBound(spec.plain, absmax);
  const float scale = std::fabs(MakeScale(spec, BitsOf(absmax), 0).scale);
  if (scale == 0) return absmax;  // the block is encoded as zeros
  // The slack is what rounding 1/scale and x * (1/scale) can add.
  const float step = WidestGap(spec) * scale * (1 + 0x1p-14f);
  if (spec.rounding == Rounding::kStochastic) return step;
  if (spec.format == Format::kInt8) return step / 2;
  const float last = spec.code == Code::kSqrt ? 49.0f : 7.0f;
  return std::max(step / 2, absmax - last * scale);  // the short side ends at the last code, 7
}

Status CheckPayload(const QuantSpec& spec, int64_t elems, std::span<const std::byte> payload) {
  ZPP_RETURN_IF_ERROR(Validate(spec));
  if (elems < 0 || elems > kMaxWire_elems) return DataLoss("payload: impossible length");
  const PayloadLayout layout = LayoutOf(spec, elems);
  if (payload.size() != static_cast<size_t>(layout.bytes())) {
    return DataLoss("payload: " + std::to_string(payload.size()) + " bytes, " + ToString(spec) +
                    " of " + std::to_string(elems) + " elements takes " +
                    std::to_string(layout.bytes()));
  }
  if (!spec.compressed()) return {};
  const std::byte* codes = payload.data() + layout.scales_bytes;
  for (int64_t block = 0; block < layout.blocks; ++block) {
    const uint32_t bits = ScaleBits(spec, payload.data(), block);
    if (!PossibleScale(spec, bits)) {
      return DataLoss("payload: block " + std::to_string(block) + " has an impossible scale");
    }
    const int64_t begin = block * spec.block_elems;
    const int64_t end = std::min<int64_t>(begin + spec.block_elems, elems);
    if (!PossibleCodes(spec, codes, begin, end, bits == 0 || bits == kScaleNaNBits)) {
      return DataLoss("payload: block " + std::to_string(block) + " has an impossible code");
    }
  }
  const int64_t padding = layout.blocks * ScaleBytes(spec);
  if (std::any_of(payload.data() + padding, codes, [](std::byte b) { return b != std::byte{0}; })) {
    return DataLoss("payload: the padding of the scales is not zero");
  }
  return {};
}

}  // namespace zpp
