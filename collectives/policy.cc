#include "collectives/policy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>

namespace zpp {
namespace {

// Blocks of 32, 64, ... 2048 elements; a test holds the rows to the codec.
using ByBlock = std::array<double, 7>;
struct ErrorRow {
  Format format;
  Code code;
  ByBlock nearest, stochastic;
};

constexpr std::array kErrors = {
    ErrorRow{Format::kInt8,
             Code::kLinear,  //
             {0.0054, 0.0060, 0.0065, 0.0070, 0.0075, 0.0079, 0.0083},
             {0.0077, 0.0085, 0.0092, 0.0099, 0.0106, 0.0112, 0.0118}},
    ErrorRow{Format::kInt4,
             Code::kLinear,  //
             {0.0859, 0.0949, 0.1032, 0.1110, 0.1185, 0.1253, 0.1319},
             {0.1380, 0.1529, 0.1665, 0.1793, 0.1917, 0.2028, 0.2137}},
    ErrorRow{Format::kInt4,
             Code::kSqrt,  //
             {0.1007, 0.1061, 0.1104, 0.1140, 0.1171, 0.1201, 0.1230},
             {0.1535, 0.1643, 0.1731, 0.1808, 0.1876, 0.1934, 0.1986}},
};

Status Refuse(const std::string& why) { return InvalidArgument("policy: " + why); }

}  // namespace

Status Validate(const CollectivePolicy& policy) {
  for (const QuantSpec& spec : {policy.intra, policy.inter}) {
    if (spec.compressed()) ZPP_RETURN_IF_ERROR(Validate(spec));
  }
  if (!std::isfinite(policy.max_rel_error) || policy.max_rel_error < 0) {
    return Refuse("max_rel_error is " + std::to_string(policy.max_rel_error) +
                  "; expected 0 or a finite positive number");
  }
  if (policy.min_compress_bytes < -1) {
    return Refuse("min_compress_bytes is " + std::to_string(policy.min_compress_bytes) +
                  "; expected a size or -1");
  }
  return {};
}

double ExpectedRelativeError(const QuantSpec& spec) {
  if (!spec.compressed()) return 0;
  const int size = std::clamp(
      static_cast<int>(std::bit_width(static_cast<uint32_t>(spec.block_elems))) - 6, 0, 6);
  for (const ErrorRow& row : kErrors) {
    if (row.format != spec.format || row.code != spec.code) continue;
    const bool nearest = spec.rounding == Rounding::kNearest;
    return (nearest ? row.nearest : row.stochastic)[static_cast<size_t>(size)];
  }
  return 1;  // unknown: never taken for fine
}

}  // namespace zpp
