// JSON from outside: bounded in size and depth, no key twice in an object, one sentence when it is
// wrong.
#pragma once

#include <cstddef>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/status.h"

namespace zpp {

struct JsonLimits {
  size_t max_bytes = size_t{1} << 20;
  int max_depth = 16;  // arrays and objects inside each other; a bare number has depth 0
};

// kDataLoss with the line and column of what is wrong. Never throws; memory in proportion to the
// text.
Result<nlohmann::json> ParseStrictJson(std::string_view text, const JsonLimits& limits = {});

// Text from outside for an error message: at most `max_chars`, with what is not printable ASCII as
// '?'.
std::string Printable(std::string_view text, size_t max_chars = 64);

}  // namespace zpp
