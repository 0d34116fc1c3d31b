#include "tests/quant/codec_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "common/float_bits.h"

namespace zpp::testing {
namespace {

constexpr std::byte kSentinel{0xa5};
using Rng = std::mt19937_64;

float RoundTo(DType dtype, float x) {
  if (dtype == DType::kF16) return F32FromF16(F16FromF32(x));
  if (dtype == DType::kBF16) return F32FromBF16(BF16FromF32(x));
  return x;
}

float Largest(DType dtype) {
  if (dtype == DType::kF16) return 65504.0f;
  if (dtype == DType::kBF16) return FloatOf(0x7f7f0000u);
  return std::numeric_limits<float>::max();
}

std::vector<float> EdgeValues(DType dtype) {
  const float big = Largest(dtype);
  std::vector<float> values = {0.0f,
                               -0.0f,
                               1.0f,
                               -1.0f,
                               0.5f,
                               1.5f,
                               2.5f,
                               -2.5f,
                               127.0f,
                               7.0f,
                               -8.0f,
                               64.0f,
                               49.0f,
                               56.5f,
                               30.5f,
                               0x1p-126f,
                               0x1p-149f,
                               -0x1p-149f,
                               0x1.fffffcp-127f,
                               0x1p-24f,
                               0x1p-14f,
                               0x1p-15f,
                               65504.0f,
                               0x1p-120f,
                               0x1p-117f,
                               0x1p-124f,
                               1e-30f,
                               1e30f,
                               big,
                               -big,
                               big / 2,
                               big / 127,
                               big / 8};
  for (float& value : values) {
    if (std::fabs(value) > big) value = big;
    value = RoundTo(dtype, value);
  }
  return values;
}

float RandomFinite(Rng& rng, DType dtype) {
  while (true) {
    const float x = dtype == DType::kF16 ? F32FromF16(static_cast<uint16_t>(rng()))
                                         : RoundTo(dtype, FloatOf(static_cast<uint32_t>(rng())));
    if (std::isfinite(x)) return x;
  }
}

// One of the numbers (k + half) * step, an ulp up or down.
float Border(Rng& rng, float step, DType dtype) {
  const int k = static_cast<int>(rng() % 130);
  float x = (static_cast<float>(k) + 0.5f) * step;
  const int side = static_cast<int>(rng() % 3) - 1;
  if (side != 0) x = std::nextafter(x, side > 0 ? Largest(dtype) : 0.0f);
  return RoundTo(dtype, (rng() & 1) != 0 ? x : -x);
}

}  // namespace

std::vector<QuantSpec> AllSpecs(std::span<const int32_t> blocks) {
  std::vector<QuantSpec> specs;
  for (int32_t block : blocks) {
    for (Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      for (ScaleType scale : {ScaleType::kBF16, ScaleType::kF32}) {
        for (QuantSpec spec : {QuantSpec::Int8(block), QuantSpec::Int4(Code::kLinear, block),
                               QuantSpec::Int4(Code::kSqrt, block)}) {
          spec.rounding = rounding;
          spec.scale_type = scale;
          specs.push_back(spec);
        }
      }
    }
  }
  return specs;
}

std::vector<Pattern> AllPatterns() {
  return {Pattern::kNormal,  Pattern::kRandomBits, Pattern::kRandomScales, Pattern::kEdges,
          Pattern::kBorders, Pattern::kEqual,      Pattern::kTies,         Pattern::kTiny,
          Pattern::kHuge,    Pattern::kNonfinite};
}

std::string Name(Pattern pattern) {
  switch (pattern) {
    case Pattern::kNormal:
      return "normal";
    case Pattern::kRandomBits:
      return "random_bits";
    case Pattern::kRandomScales:
      return "random_scales";
    case Pattern::kEdges:
      return "edges";
    case Pattern::kBorders:
      return "borders";
    case Pattern::kEqual:
      return "equal";
    case Pattern::kTies:
      return "ties";
    case Pattern::kTiny:
      return "tiny";
    case Pattern::kHuge:
      return "huge";
    case Pattern::kNonfinite:
      return "nonfinite";
  }
  return "";
}

std::vector<float> Make(Pattern pattern, int64_t elems, uint64_t seed, DType dtype) {
  Rng rng(seed * 1000003 + static_cast<uint64_t>(pattern));
  std::normal_distribution<float> normal;
  const std::vector<float> edges = EdgeValues(dtype);
  const float step =
      std::ldexp(1.0f + static_cast<float>(rng() % 128) / 128.0f, static_cast<int>(rng() % 8) - 4);
  float magnitude = 1;
  std::vector<float> values(static_cast<size_t>(elems));
  for (size_t i = 0; i < values.size(); ++i) {
    float& x = values[i];
    const float sign = (rng() & 1) != 0 ? 1.0f : -1.0f;
    switch (pattern) {
      case Pattern::kNormal:
        x = normal(rng);
        break;
      case Pattern::kRandomBits:
        x = RandomFinite(rng, dtype);
        break;
      case Pattern::kRandomScales:
        if (i % 32 == 0) magnitude = std::ldexp(1.0f, static_cast<int>(rng() % 252) - 126);
        x = normal(rng) * magnitude;
        if (std::fabs(x) > Largest(dtype)) x = Largest(dtype) * sign;
        break;
      case Pattern::kEdges:
        x = edges[rng() % edges.size()];
        break;
      case Pattern::kBorders:
        x = i % 32 == 0 ? 127.0f * step * sign : Border(rng, step, dtype);
        break;
      case Pattern::kEqual:
        x = step;
        break;
      case Pattern::kTies:
        x = i % 16 == 3 ? step : i % 16 == 7 ? -step : normal(rng) * step / 8;
        break;
      case Pattern::kTiny:
        x = FloatOf(static_cast<uint32_t>(rng() & 0x807fffffu));
        break;
      case Pattern::kHuge:
        x = sign * Largest(dtype) * (1.0f - static_cast<float>(rng() % 1024) * 0x1p-12f);
        break;
      case Pattern::kNonfinite:
        x = normal(rng);
        if (rng() % 61 == 0) x = sign * std::numeric_limits<float>::infinity();
        if (rng() % 67 == 0) x = FloatOf(static_cast<uint32_t>(rng()) | 0x7f800000u);
        break;
    }
    x = RoundTo(dtype, x);
  }
  return values;
}

Guarded::Guarded(size_t bytes, size_t misaligned) : size_(bytes) {
  bytes_.assign(bytes + 2 * kGuard + 64 + misaligned, kSentinel);
  offset_ =
      kGuard + (64 - reinterpret_cast<uintptr_t>(bytes_.data() + kGuard) % 64) % 64 + misaligned;
}

Guarded::Guarded(DType dtype, std::span<const float> values, size_t misaligned)
    : Guarded(values.size() * static_cast<size_t>(SizeOf(dtype)), misaligned) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(data() + 4 * i, &values[i], 4);
      continue;
    }
    const uint16_t half = dtype == DType::kF16 ? F16FromF32(values[i]) : BF16FromF32(values[i]);
    std::memcpy(data() + 2 * i, &half, 2);
  }
}

bool Guarded::intact() const {
  const auto clean = [](std::byte b) { return b == kSentinel; };
  const auto begin = bytes_.begin();
  const auto at = begin + static_cast<int64_t>(offset_);
  return std::all_of(begin, at, clean) &&
         std::all_of(at + static_cast<int64_t>(size_), bytes_.end(), clean);
}

WithTarget::WithTarget(std::string_view name) {
  const Status status = SetCodecTarget(name);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

WithTarget::~WithTarget() { EXPECT_TRUE(SetCodecTarget("").ok()); }

std::vector<std::byte> EncodeF32(const QuantSpec& spec, std::span<const float> values,
                                 const NoiseKey& noise) {
  const int64_t elems = static_cast<int64_t>(values.size());
  std::vector<std::byte> payload(static_cast<size_t>(PayloadBytes(spec, elems)), std::byte{0xcc});
  const Status status = Encode(spec, {DType::kF32, values.data(), elems}, payload, noise);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return payload;
}

std::vector<float> DecodeF32(const QuantSpec& spec, std::span<const std::byte> payload,
                             int64_t elems) {
  std::vector<float> values(static_cast<size_t>(elems), -12345.0f);
  const Status status = Decode(spec, payload, {DType::kF32, values.data(), elems});
  EXPECT_TRUE(status.ok()) << status.ToString();
  return values;
}

std::vector<uint32_t> Bits(std::span<const float> values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (float value : values) bits.push_back(BitsOf(value));
  return bits;
}

}  // namespace zpp::testing
