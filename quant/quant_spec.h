// What a vector is encoded as. A value: comparable, printable, parsed from text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/dtype.h"
#include "common/status.h"

namespace zpp {

enum class Format : uint8_t { kNone = 0, kInt8 = 1, kInt4 = 2 };
// How a code k becomes a level, which times the block's scale is the value: linear is k, sqrt (int4
// only) is sign(k)*k^2, so that small values get more of the levels.
enum class Code : uint8_t { kLinear = 0, kSqrt = 1 };
enum class ScaleType : uint8_t { kBF16 = 0, kF32 = 1 };
enum class Rounding : uint8_t { kNearest = 0, kStochastic = 1 };

inline constexpr int32_t kMinBlock_elems = 32;
inline constexpr int32_t kMaxBlock_elems = 2048;

struct QuantSpec {
  Format format = Format::kNone;
  Code code = Code::kLinear;
  Rounding rounding = Rounding::kNearest;
  ScaleType scale_type = ScaleType::kBF16;
  int32_t block_elems = 0;    // 32..2048, a power of two; 0 for kNone
  int32_t rotation = 0;       // reserved; anything but 0 is kUnimplemented
  DType plain = DType::kF32;  // the type of the values on the wire, for kNone only

  bool operator==(const QuantSpec&) const = default;

  static QuantSpec None(DType plain = DType::kF32) { return {.plain = plain}; }
  static QuantSpec Int8(int32_t block_elems = 256) {
    return {.format = Format::kInt8, .block_elems = block_elems};
  }
  static QuantSpec Int4(Code code, int32_t block_elems = 128) {
    return {.format = Format::kInt4, .code = code, .block_elems = block_elems};
  }
  bool compressed() const { return format != Format::kNone; }
};

// kInvalidArgument or kUnimplemented with one sentence; ok when the codec can run it.
Status Validate(const QuantSpec& spec);

// "none/fp32", "int8/256", "int4/128/sqrt", "int4/128/linear/stochastic/fp32-scales".
std::string ToString(const QuantSpec& spec);
// The inverse of ToString; defaults may be left out ("int4" is block 128, linear, nearest, bf16
// scales).
Result<QuantSpec> ParseQuantSpec(std::string_view text);

}  // namespace zpp
