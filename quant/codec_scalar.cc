// The codec element by element: slow, short, and what every SIMD target must equal byte for byte.
#include <algorithm>
#include <cstring>

#include "quant/codec_kernels.h"
#include "quant/codec_math.h"
#include "quant/noise.h"

namespace zpp {
namespace {

template <typename T>
T LoadAt(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + index * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <typename T>
void StoreAt(void* data, int64_t index, T value) {
  std::memcpy(static_cast<std::byte*>(data) + index * static_cast<int64_t>(sizeof(T)), &value,
              sizeof(T));
}

float LoadElem(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return LoadAt<float>(data, i);
    case DType::kF16:
      return F32FromF16(LoadAt<uint16_t>(data, i));
    case DType::kBF16:
      return F32FromBF16(LoadAt<uint16_t>(data, i));
    case DType::kByte:
      break;
  }
  return 0;
}

void StoreElem(Vec out, int64_t i, float value) {
  switch (out.dtype) {
    case DType::kF32:
      return StoreAt(out.data, i, value);
    case DType::kF16:
      return StoreAt(out.data, i, F16FromF32(value));
    case DType::kBF16:
      return StoreAt(out.data, i, BF16FromF32(value));
    case DType::kByte:
      break;
  }
}

void StoreDecoded(Vec out, int64_t i, float value) {
  if (out.dtype == DType::kF16) return StoreAt(out.data, i, DecodedToF16(value));
  if (out.dtype == DType::kBF16) return StoreAt(out.data, i, DecodedToBF16(value));
  StoreElem(out, i, value);
}

float LoadScale(const QuantSpec& spec, const std::byte* scales, int64_t block) {
  if (spec.scale_type == ScaleType::kF32) return CanonicalScale(LoadAt<uint32_t>(scales, block));
  return CanonicalScale(static_cast<uint32_t>(LoadAt<uint16_t>(scales, block)) << 16);
}

void StoreScale(const QuantSpec& spec, std::byte* scales, int64_t block, float scale) {
  if (spec.scale_type == ScaleType::kF32) return StoreAt(scales, block, scale);
  StoreAt(scales, block, BF16Scale(scale));
}

int32_t LoadCode(const QuantSpec& spec, const std::byte* codes, int64_t i) {
  if (spec.format == Format::kInt8) return static_cast<int8_t>(codes[i]);
  const int32_t nibble = std::to_integer<int32_t>(codes[i / 2]) >> (i % 2 * 4) & 15;
  return nibble >= 8 ? nibble - 16 : nibble;
}

// int4: even elements write the byte, so that an odd tail leaves a zero in the upper half.
void StoreCode(const QuantSpec& spec, std::byte* codes, int64_t i, int32_t code) {
  if (spec.format == Format::kInt8) {
    codes[i] = static_cast<std::byte>(code);
  } else if (i % 2 == 0) {
    codes[i / 2] = static_cast<std::byte>(code & 15);
  } else {
    codes[i / 2] |= static_cast<std::byte>((code & 15) << 4);
  }
}

BlockScale ScaleOf(const QuantSpec& spec, ConstVec in, int64_t begin, int64_t end) {
  uint32_t positive = 0, negative = 0;
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t bits = BitsOf(LoadElem(in.dtype, in.data, i));
    uint32_t& largest = (bits >> 31) != 0 ? negative : positive;
    largest = std::max(largest, bits & 0x7fffffffu);
  }
  return MakeScale(spec, positive, negative);
}

void ScalarEncode(const QuantSpec& spec, ConstVec in, PayloadOut out, const NoiseKey& noise, bool) {
  const bool nearest = spec.rounding == Rounding::kNearest;
  for (int64_t begin = 0; begin < in.elems; begin += spec.block_elems) {
    const int64_t end = std::min<int64_t>(begin + spec.block_elems, in.elems);
    const BlockScale scale = ScaleOf(spec, in, begin, end);
    StoreScale(spec, out.scales, begin / spec.block_elems, scale.scale);
    for (int64_t i = begin; i < end; ++i) {
      int32_t code = 0;
      if (scale.inverse != 0) {
        const float t = LoadElem(in.dtype, in.data, i) * scale.inverse;
        const uint64_t elem = noise.first_elem + static_cast<uint64_t>(i);
        code = nearest ? NearestCode(spec, t)
                       : StochasticCode(spec, t, NoiseOf(noise.seed, noise.step, elem));
      }
      StoreCode(spec, out.codes, i, code);
    }
  }
}

float DecodedAt(const QuantSpec& spec, PayloadIn in, int64_t i) {
  const float level = LevelOf(spec, LoadCode(spec, in.codes, i));
  return ValueOf(LoadScale(spec, in.scales, i / spec.block_elems), level);
}

void ScalarDecode(const QuantSpec& spec, PayloadIn in, Vec out, bool) {
  for (int64_t i = 0; i < out.elems; ++i) StoreDecoded(out, i, DecodedAt(spec, in, i));
}

void ScalarAccumulate(const QuantSpec& spec, PayloadIn in, float* acc, int64_t elems) {
  for (int64_t i = 0; i < elems; ++i) {
    StoreAt(acc, i, LoadAt<float>(acc, i) + DecodedAt(spec, in, i));
  }
}

float OperandAt(const SumOperand& operand, int64_t i) {
  if (operand.spec.compressed()) return DecodedAt(operand.spec, operand.payload, i);
  return LoadElem(operand.spec.plain, operand.payload.codes, i);
}

void ScalarSum(std::span<const SumOperand> in, float divisor, Vec out) {
  for (int64_t i = 0; i < out.elems; ++i) {
    float sum = OperandAt(in[0], i);
    for (const SumOperand& operand : in.subspan(1)) sum += OperandAt(operand, i);
    StoreElem(out, i, divisor == 1 ? sum : sum / divisor);
  }
}

void ScalarConvert(ConstVec in, Vec out) {
  for (int64_t i = 0; i < out.elems; ++i) StoreElem(out, i, LoadElem(in.dtype, in.data, i));
}

void ScalarStream(const std::byte* from, int64_t bytes, std::byte* to) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

const CodecKernels& ScalarKernels() {
  static constexpr CodecKernels kKernels = {.name = "scalar",
                                            .encode = ScalarEncode,
                                            .decode = ScalarDecode,
                                            .accumulate = ScalarAccumulate,
                                            .sum = ScalarSum,
                                            .convert = ScalarConvert,
                                            .stream = ScalarStream};
  return kKernels;
}

}  // namespace zpp
