#include "cli/bw_values.h"

#include <cstring>

#include "common/float_bits.h"

namespace zpp::cli {
namespace {

constexpr int64_t kRotationGrid_elems =
    2048;  // blocks of a rotated file hold the neighbours that they held before

// SplitMix64's finalizer: every bit of the input reaches every bit of the output.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The sum of four uniform numbers, of mean 0 and variance 1: as good as normal for a codec, and
// cheap.
float NormalLike(uint64_t bits) {
  const uint32_t sum = static_cast<uint32_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) +
                                             ((bits >> 32) & 0xffff) + (bits >> 48));
  constexpr float kScale = 1.7320508f / 65536.0f;
  return (static_cast<float>(sum) - 131070.0f) * kScale;
}

float Round(DType dtype, float x) {
  switch (dtype) {
    case DType::kF16:
      return F32FromF16(F16FromF32(x));
    case DType::kBF16:
      return F32FromBF16(BF16FromF32(x));
    case DType::kF32:
    case DType::kByte:
      return x;
  }
  return x;
}

}  // namespace

Values::Values(DType dtype, std::vector<float> file_values, int world)
    : dtype_(dtype), file_(std::move(file_values)) {
  const int64_t step = static_cast<int64_t>(file_.size()) / world;
  rotation_elems_ =
      step >= kRotationGrid_elems ? step / kRotationGrid_elems * kRotationGrid_elems : step;
}

float Values::Raw(int rank, int64_t index) const {
  if (file_.empty()) {
    return NormalLike(Mix(Mix(static_cast<uint64_t>(rank)) + static_cast<uint64_t>(index)));
  }
  const int64_t place = index + rank * rotation_elems_;
  return file_[static_cast<size_t>(place % static_cast<int64_t>(file_.size()))];
}

void Values::Read(int rank, int64_t first, std::span<float> out) const {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = Round(dtype_, Raw(rank, first + static_cast<int64_t>(i)));
  }
}

void Values::Fill(int rank, int64_t first, Vec out) const {
  auto* bytes = static_cast<std::byte*>(out.data);
  for (int64_t i = 0; i < out.elems; ++i) {
    const float x = Raw(rank, first + i);
    if (out.dtype == DType::kF32) {
      std::memcpy(bytes + 4 * i, &x, 4);
    } else {
      const uint16_t half = out.dtype == DType::kF16 ? F16FromF32(x) : BF16FromF32(x);
      std::memcpy(bytes + 2 * i, &half, 2);
    }
  }
}

float ElementAt(ConstVec vec, int64_t index) {
  const auto* bytes = static_cast<const std::byte*>(vec.data);
  if (vec.dtype == DType::kF32) {
    float x;
    std::memcpy(&x, bytes + 4 * index, 4);
    return x;
  }
  uint16_t half;
  std::memcpy(&half, bytes + 2 * index, 2);
  return vec.dtype == DType::kF16 ? F32FromF16(half) : F32FromBF16(half);
}

}  // namespace zpp::cli
