// Numbers as people type them.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/status.h"

namespace zpp::cli {

// "8", "64K", "16M", "1G" (powers of 1024, either case) as bytes. An error says what is wrong with
// `flag`.
Result<int64_t> ParseSize(std::string_view flag, std::string_view text);

// A finite number within [low, high].
Status CheckRange(std::string_view flag, double value, double low, double high);

}  // namespace zpp::cli
