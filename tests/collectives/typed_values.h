// Values of the element types in raw memory, for tests: inputs that tell rank and index, guarded
// buffers, digests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/float_bits.h"

namespace zpp::test {

// Whole numbers, small enough that sums over a few ranks are exact in every type; rank and index
// both show.
inline double InputAt(int rank, int64_t i) {
  const auto mixed = static_cast<uint64_t>(i) * 2654435761u + static_cast<uint64_t>(rank) * 40503u;
  return static_cast<double>(mixed / 7 % 17) - 8 + rank;
}

inline void Put(DType dtype, double x, std::byte* at) {
  const auto f = static_cast<float>(x);
  switch (dtype) {
    case DType::kF32:
      std::memcpy(at, &f, 4);
      return;
    case DType::kF16: {
      const uint16_t h = F16FromF32(f);
      std::memcpy(at, &h, 2);
      return;
    }
    case DType::kBF16: {
      const uint16_t h = BF16FromF32(f);
      std::memcpy(at, &h, 2);
      return;
    }
    case DType::kByte:
      *at = static_cast<std::byte>(static_cast<int>(x) & 0xff);
      return;
  }
}

inline double Take(DType dtype, const std::byte* at) {
  float f = 0;
  uint16_t h = 0;
  switch (dtype) {
    case DType::kF32:
      std::memcpy(&f, at, 4);
      return f;
    case DType::kF16:
      std::memcpy(&h, at, 2);
      return F32FromF16(h);
    case DType::kBF16:
      std::memcpy(&h, at, 2);
      return F32FromBF16(h);
    case DType::kByte:
      return static_cast<double>(static_cast<int8_t>(*at));
  }
  return 0;
}

inline constexpr int64_t kGuard_bytes = 64;
inline constexpr std::byte kPoison{0xa5};

// A buffer between guards, at an odd distance from alignment of its own element size.
class Guarded {
 public:
  Guarded(DType dtype, int64_t elems) : dtype_(dtype), elems_(elems) {
    memory_.assign(static_cast<size_t>(2 * kGuard_bytes + bytes() + SizeOf(dtype)), kPoison);
  }
  int64_t bytes() const { return elems_ * SizeOf(dtype_); }
  std::byte* data() { return memory_.data() + kGuard_bytes + SizeOf(dtype_); }
  bool GuardsHold() {
    const auto poisoned = [](std::byte b) { return b == kPoison; };
    return std::all_of(memory_.data(), data(), poisoned) &&
           std::all_of(data() + bytes(), memory_.data() + memory_.size(), poisoned);
  }

 private:
  DType dtype_;
  int64_t elems_;
  std::vector<std::byte> memory_;
};

inline std::string Digest(const std::byte* data, int64_t bytes) {
  uint64_t hash = 1469598103934665603u;
  for (int64_t i = 0; i < bytes; ++i) {
    hash = (hash ^ static_cast<uint64_t>(data[i])) * 1099511628211u;
  }
  return std::to_string(hash);
}

}  // namespace zpp::test
