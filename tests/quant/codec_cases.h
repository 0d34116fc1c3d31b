// Inputs and drivers that the codec's tests share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quant/codec.h"

namespace zpp::testing {

// Every format x code x rounding x scale type at these block sizes.
std::vector<QuantSpec> AllSpecs(std::span<const int32_t> blocks);
// The three types that are encoded.
inline constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// Vectors that are nasty in one way each; `elems` long, made of values that `dtype` holds exactly.
enum class Pattern {
  kNormal,        // N(0,1)
  kRandomBits,    // finite, every exponent alike
  kRandomScales,  // blocks of 32 of very different magnitude
  kEdges,         // the table of edge values, shuffled
  kBorders,       // rounding borders of some scale, and one ulp beside them
  kEqual,         // one value everywhere
  kTies,          // +max and -max in every block
  kTiny,          // subnormals
  kHuge,          // near the largest finite value
  kNonfinite,     // N(0,1) with a NaN or an infinity here and there
};
std::vector<Pattern> AllPatterns();
std::string Name(Pattern pattern);
std::vector<float> Make(Pattern pattern, int64_t elems, uint64_t seed, DType dtype = DType::kF32);

// fp32 values as a vector of `dtype`, `misaligned` bytes behind an aligned address; sentinels all
// around.
class Guarded {
 public:
  Guarded(size_t bytes, size_t misaligned);
  Guarded(DType dtype, std::span<const float> values, size_t misaligned);
  std::byte* data() { return bytes_.data() + offset_; }
  std::span<std::byte> span() { return {data(), size_}; }
  // Are the bytes before and behind untouched?
  bool intact() const;
  ConstVec vec(DType dtype) { return {dtype, data(), static_cast<int64_t>(size_) / SizeOf(dtype)}; }
  Vec out(DType dtype) { return {dtype, data(), static_cast<int64_t>(size_) / SizeOf(dtype)}; }
  std::vector<std::byte> copy() { return {data(), data() + size_}; }

 private:
  static constexpr size_t kGuard = 256;
  std::vector<std::byte> bytes_;
  size_t offset_ = 0;
  size_t size_ = 0;
};

// Runs with one codec target, then returns to the best.
class WithTarget {
 public:
  explicit WithTarget(std::string_view name);
  ~WithTarget();
};

std::vector<std::byte> EncodeF32(const QuantSpec& spec, std::span<const float> values,
                                 const NoiseKey& noise = {});
std::vector<float> DecodeF32(const QuantSpec& spec, std::span<const std::byte> payload,
                             int64_t elems);
std::vector<uint32_t> Bits(std::span<const float> values);

}  // namespace zpp::testing
