#include "zero/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "zero/internal/optimizer_kernels.h"

namespace zpp {
namespace {

// A float is m * 2^(max(e, 1) - 150) with its 8 exponent bits e and m < 2^24; its square is
// m^2 * 2^(2 * (max(e, 1) - 1)) in units of 2^-298. So the squares of equal e are added up as
// integers first.
constexpr int kUnitExponent = -298;
constexpr size_t kBins = 256;
constexpr size_t kNonfiniteBin = 255;
// Consecutive elements go to different tables: neighbours often have equal exponents, and an
// addition would wait for the one before.
constexpr size_t kTables = 8;
// 2^16 squares below 2^48 do not overflow a bin, not even that of all tables together.
constexpr size_t kTile_elems = size_t{1} << 16;

using Table = std::array<uint64_t, kBins>;

void AddGroup(const SquareGroup& group, Table* tables) {
  static_assert(SquareGroup::kElems % kTables == 0);
  for (size_t i = 0; i < SquareGroup::kElems; i += kTables) {
    for (size_t t = 0; t < kTables; ++t) {
      tables[t][group.exponents[i + t]] += group.squares[i + t];
    }
  }
}

// At most kTile_elems values.
Table SumByExponent(std::span<const float> values) {
  Table tables[kTables] = {};
  const OptimizerKernels& kernels = DefaultOptimizerKernels();
  SquareGroup group;
  constexpr size_t kElems = SquareGroup::kElems;
  const size_t whole = values.size() / kElems * kElems;
  for (size_t i = 0; i < whole; i += kElems) {
    kernels.squares(values.data() + i, group);
    AddGroup(group, tables);
  }
  if (whole < values.size()) {
    float rest[kElems] = {};  // the square of zero adds nothing
    std::copy(values.begin() + static_cast<int64_t>(whole), values.end(), rest);
    kernels.squares(rest, group);
    AddGroup(group, tables);
  }
  for (size_t t = 1; t < kTables; ++t) {
    for (size_t e = 0; e < kBins; ++e) tables[0][e] += tables[t][e];
  }
  return tables[0];
}

uint64_t CountNonfinite(std::span<const float> values) {
  return static_cast<uint64_t>(
      std::count_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); }));
}

void StoreLittleEndian(uint64_t value, std::byte* out) {
  for (int i = 0; i < 8; ++i) out[i] = static_cast<std::byte>(value >> (8 * i));
}

uint64_t LoadLittleEndian(const std::byte* in) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= std::to_integer<uint64_t>(in[i]) << (8 * i);
  return value;
}

// limbs[at...] += value; what is carried out of the last limb is lost.
void AddWithCarry(std::span<uint64_t> limbs, size_t at, uint64_t value) {
  for (; value != 0 && at < limbs.size(); ++at) {
    limbs[at] += value;
    value = limbs[at] < value ? 1 : 0;
  }
}

}  // namespace

void ExactSum::AddSquares(std::span<const float> values) {
  for (size_t at = 0; at < values.size(); at += kTile_elems) {
    AddTile(values.subspan(at, std::min(kTile_elems, values.size() - at)));
  }
}

void ExactSum::AddTile(std::span<const float> values) {
  const Table sums = SumByExponent(values);
  for (size_t e = 0; e < kNonfiniteBin; ++e) {
    if (sums[e] != 0) AddShifted(sums[e], 2 * static_cast<int>(std::max<size_t>(e, 1) - 1));
  }
  if (sums[kNonfiniteBin] != 0) nonfinite_ += CountNonfinite(values);
}

// limbs += value * 2^bit.
void ExactSum::AddShifted(uint64_t value, int bit) {
  const size_t limb = static_cast<size_t>(bit) / 64;
  const int shift = bit % 64;
  AddWithCarry(limbs_, limb, value << shift);
  if (shift != 0) AddWithCarry(limbs_, limb + 1, value >> (64 - shift));
}

void ExactSum::Merge(const ExactSum& other) {
  // Into a copy: `other` may be this very object.
  std::array<uint64_t, kLimbs> sum = limbs_;
  for (size_t i = 0; i < kLimbs; ++i) AddWithCarry(sum, i, other.limbs_[i]);
  limbs_ = sum;
  nonfinite_ += other.nonfinite_;
}

double ExactSum::ToDouble() const {
  if (nonfinite_ != 0) return std::numeric_limits<double>::quiet_NaN();
  size_t top = kLimbs;
  while (top > 0 && limbs_[top - 1] == 0) --top;
  if (top == 0) return 0;
  // The 64 bits from the highest one on; the lowest of them also stands for all below.
  const int zeros = std::countl_zero(limbs_[top - 1]);
  uint64_t head = limbs_[top - 1] << zeros;
  if (zeros != 0 && top >= 2) head |= limbs_[top - 2] >> (64 - zeros);
  bool rest = top >= 2 && (limbs_[top - 2] << zeros) != 0;
  for (size_t i = 0; i + 2 < top; ++i) rest |= limbs_[i] != 0;
  if (rest) head |= 1;
  // uint64_t -> double rounds to nearest even; the scaling is exact.
  return std::ldexp(static_cast<double>(head),
                    kUnitExponent + 64 * static_cast<int>(top - 1) - zeros);
}

double ExactSum::Norm() const { return std::sqrt(ToDouble()); }

std::array<std::byte, ExactSum::kBytes> ExactSum::Serialize() const {
  std::array<std::byte, kBytes> bytes;
  for (size_t i = 0; i < kLimbs; ++i) StoreLittleEndian(limbs_[i], bytes.data() + 8 * i);
  StoreLittleEndian(nonfinite_, bytes.data() + 8 * kLimbs);
  return bytes;
}

ExactSum ExactSum::Deserialize(std::span<const std::byte, kBytes> bytes) {
  ExactSum sum;
  for (size_t i = 0; i < kLimbs; ++i) sum.limbs_[i] = LoadLittleEndian(bytes.data() + 8 * i);
  sum.nonfinite_ = LoadLittleEndian(bytes.data() + 8 * kLimbs);
  return sum;
}

}  // namespace zpp
