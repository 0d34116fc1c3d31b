#include "cli/parse.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <string>

namespace zpp::cli {
namespace {

std::string Quote(std::string_view text) { return std::string("'").append(text) + "'"; }

// Bits to shift by for a suffix, -1 for one that is not known.
int ShiftOf(std::string_view suffix) {
  if (suffix.empty()) return 0;
  if (suffix.size() != 1) return -1;
  switch (suffix[0]) {
    case 'k':
    case 'K':
      return 10;
    case 'm':
    case 'M':
      return 20;
    case 'g':
    case 'G':
      return 30;
    default:
      return -1;
  }
}

std::string Short(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

Result<int64_t> ParseSize(std::string_view flag, std::string_view text) {
  const std::string name(flag);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const int shift = ShiftOf(text.substr(static_cast<size_t>(end - text.data())));
  if (error == std::errc::result_out_of_range) {
    return InvalidArgument(name + " " + Quote(text) + " is too large");
  }
  if (error != std::errc() || shift < 0) {
    return InvalidArgument(name + " takes bytes like 4096, 64K, 16M or 1G, not " + Quote(text));
  }
  if (value <= 0) return InvalidArgument(name + " must be above 0, not " + Quote(text));
  if (value > (INT64_MAX >> shift)) {
    return InvalidArgument(name + " " + Quote(text) + " is too large");
  }
  return value << shift;
}

Status CheckRange(std::string_view flag, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value <= high) return {};
  return InvalidArgument(std::string(flag) + " must be a number from " + Short(low) + " to " +
                         Short(high) + ", not " + Short(value));
}

}  // namespace zpp::cli
