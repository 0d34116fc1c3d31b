// Reads the objects of a configuration key by key. The first fault sticks: what is read after it
// changes nothing, so that the code that reads is a plain list of keys.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/status.h"
#include "common/strict_json.h"

namespace zpp {

// What all sections of one text share.
struct ConfigText {
  nlohmann::json root;
  JsonLines lines;
  std::vector<std::string> notes;
  Status status;  // the first fault

  // "line 3: "; nothing for a key that is not there.
  std::string Where(const std::string& pointer) const;
};

// A key, and another name that it goes by.
struct ConfigKey {
  ConfigKey(const char* the_name, const char* the_alias = "") : name(the_name), alias(the_alias) {}
  std::string_view name;
  std::string_view alias;
};

template <typename T>
struct ConfigRange {
  T low;
  T high;
};

// A word and what it stands for.
template <typename E>
struct ConfigChoice {
  std::string_view word;
  E value;
};

class ConfigSection {
 public:
  // The whole text, which the caller keeps.
  explicit ConfigSection(ConfigText& text);

  // Each sets `out` when the key is there and leaves it as it is otherwise. Integers may be written
  // as 5e8; words are read in any case.
  void Bool(ConfigKey key, bool& out);
  void Number(ConfigKey key, ConfigRange<double> range, double& out);
  template <typename Int>
  void Integer(ConfigKey key, ConfigRange<int64_t> range, Int& out) {
    int64_t value = 0;
    if (ReadInteger(key, range, value)) out = static_cast<Int>(value);
  }
  template <typename E>
  void Choice(ConfigKey key, std::span<const ConfigChoice<E>> choices, E& out) {
    std::vector<std::string_view> words;
    for (const ConfigChoice<E>& choice : choices) words.push_back(choice.word);
    const int index = ReadWord(key, words);
    if (index >= 0) out = choices[static_cast<size_t>(index)].value;
  }
  // The two numbers of a list.
  void Pair(ConfigKey key, ConfigRange<double> range, double& first, double& second);
  // An object; an empty section when it is not there.
  ConfigSection Section(ConfigKey key);
  // The same, also when the key is `true` or `false`, which sets `out`.
  ConfigSection SectionOrBool(ConfigKey key, bool& out);

  bool Has(ConfigKey key) const { return Find(key) != nullptr; }
  // The value, whatever it is.
  const nlohmann::json* Raw(ConfigKey key);

  // `sentence` follows on the key's place and name: "line 3: zero_optimization.stage " + sentence.
  void Refuse(ConfigKey key, const std::string& sentence);
  // Of the section itself.
  void RefuseAll(const std::string& sentence);
  void Note(ConfigKey key, const std::string& sentence);
  void NoteIfGiven(std::initializer_list<ConfigKey> keys, const std::string& sentence);

  // Every key that nobody has asked for is looked up among those that have no effect here; what is
  // not there either is refused, with the nearest key.
  void Finish();

  // "zero_optimization"; empty for the whole.
  const std::string& path() const { return path_; }

 private:
  ConfigSection(ConfigText& text, const nlohmann::json* object, std::string pointer,
                std::string path);

  // The value; null when there is none, or when it is null and may be.
  const nlohmann::json* Find(ConfigKey key) const;
  // The same, for reading: remembers the key, refuses "auto", null and two names at once.
  const nlohmann::json* Take(ConfigKey key);
  bool ReadInteger(ConfigKey key, ConfigRange<int64_t> range, int64_t& out);
  int ReadWord(ConfigKey key, std::span<const std::string_view> words);
  void WrongType(ConfigKey key, std::string_view wanted, const nlohmann::json& value);
  void FinishKey(const std::string& key, const nlohmann::json& value);
  // The name that is in the text.
  std::string_view Given(ConfigKey key) const;
  std::string Place(std::string_view key) const;

  ConfigText* text_;
  const nlohmann::json* object_;  // null: not there
  std::string pointer_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

// The value as a message shows it: short and printable.
std::string ShowJson(const nlohmann::json& value);

}  // namespace zpp
