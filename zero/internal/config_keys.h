// DeepSpeed's keys that set nothing here, and the search for the key that was meant.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace zpp {

enum class InertEffect : uint8_t {
  kNoted,    // harmless: accepted, with a note
  kRefused,  // ignoring it would change the training, or what the user counts on
};

// A key of DeepSpeed's that sets nothing here.
struct InertKey {
  std::string_view section;  // its path; "" for the whole
  std::string_view key;
  std::string_view quiet;  // the value, as JSON, that asks for nothing: it passes without a word
  InertEffect effect;
  std::string_view sentence;  // what follows on the key's name
};

std::span<const InertKey> InertKeys();
const InertKey* FindInertKey(std::string_view section, std::string_view key);
// Does the value ask for nothing: the quiet one, null, an empty object, or one not enabled?
bool IsQuiet(const InertKey& inert, const nlohmann::json& value);

// May the key be null, which is then as if it were not there?
bool MayBeNull(std::string_view key);

// The least number of characters to insert, delete, replace or swap with their neighbour.
int EditDistance(std::string_view a, std::string_view b);
// What was meant by a key that `section` does not know: the nearest of `known` and of its inert
// keys when it is near, or the section in which the key has its place. A sentence's end: "; did you
// mean 'stage'?". Empty when nothing is near.
std::string Suggestion(std::string_view section, std::string_view key,
                       const std::set<std::string, std::less<>>& known);

}  // namespace zpp
