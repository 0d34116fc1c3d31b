// JSON from outside: bounded in size and depth, no key twice in an object, one sentence when it is
// wrong.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/status.h"

namespace zpp {

struct JsonLimits {
  size_t max_bytes = size_t{1} << 20;
  int max_depth = 16;  // arrays and objects inside each other; a bare number has depth 0
};

// The line, from 1, of every key of every object, by the JSON pointer to its value:
// "/tiers/0/latency_s", with ~0 and ~1 for ~ and /.
using JsonLines = std::map<std::string, int, std::less<>>;

// kDataLoss with the line and column of what is wrong. Never throws; memory in proportion to the
// text. With `lines`, which is filled on success, readers can say where a value stands.
Result<nlohmann::json> ParseStrictJson(std::string_view text, const JsonLimits& limits = {},
                                       JsonLines* lines = nullptr);

// One step of a JSON pointer: "/key", with ~ and / escaped.
std::string JsonPointerStep(std::string_view key);

// Text from outside for an error message: at most `max_chars`, with what is not printable ASCII as
// '?'.
std::string Printable(std::string_view text, size_t max_chars = 64);

}  // namespace zpp
