#include "zero/internal/config_section.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "zero/internal/config_keys.h"

namespace zpp {
namespace {

using Json = nlohmann::json;

constexpr double kExactDouble = 0x1p53;  // integers up to here have a double of their own

// An integer, however it is written; empty when it is none.
std::optional<int64_t> AsInteger(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return INT64_MAX;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (number != std::floor(number)) return std::nullopt;
  if (std::abs(number) > kExactDouble) return number > 0 ? INT64_MAX : INT64_MIN;
  return static_cast<int64_t>(number);
}

std::string ShowNumber(double value) { return Json(value).dump(); }

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::string Listed(std::span<const std::string_view> words) {
  std::string list;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) list += i + 1 == words.size() ? " or " : ", ";
    list += '\'' + std::string(words[i]) + '\'';
  }
  return list;
}

bool IsAuto(const Json& value) { return value.is_string() && value == "auto"; }

}  // namespace

std::string ShowJson(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return Printable(value.dump(-1, ' ', true, Json::error_handler_t::replace), 40);
}

std::string ConfigText::Where(const std::string& pointer) const {
  const auto it = lines.find(pointer);
  return it == lines.end() ? "" : "line " + std::to_string(it->second) + ": ";
}

ConfigSection::ConfigSection(ConfigText& text) : ConfigSection(text, &text.root, "", "") {}

ConfigSection::ConfigSection(ConfigText& text, const Json* object, std::string pointer,
                             std::string path)
    : text_(&text), object_(object), pointer_(std::move(pointer)), path_(std::move(path)) {}

std::string_view ConfigSection::Given(ConfigKey key) const {
  if (object_ == nullptr || key.alias.empty() || object_->contains(key.name)) return key.name;
  return object_->contains(key.alias) ? key.alias : key.name;
}

const Json* ConfigSection::Find(ConfigKey key) const {
  if (object_ == nullptr) return nullptr;
  const auto it = object_->find(Given(key));
  if (it == object_->end() || (it->is_null() && MayBeNull(key.name))) return nullptr;
  return &*it;
}

const Json* ConfigSection::Take(ConfigKey key) {
  known_.emplace(key.name);
  if (!key.alias.empty()) known_.emplace(key.alias);
  if (object_ == nullptr || !text_->status.ok()) return nullptr;
  if (!key.alias.empty() && object_->contains(key.name) && object_->contains(key.alias)) {
    Refuse(key.alias.data(), "is another name for '" + std::string(key.name) +
                                 "', which is given too: remove one of them");
    return nullptr;
  }
  const Json* value = Find(key);
  if (value == nullptr || !IsAuto(*value)) return value;
  Refuse(key,
         "is \"auto\", which other trainers replace by a value of their own before DeepSpeed reads "
         "it; nothing does that here, so write the value");
  return nullptr;
}

void ConfigSection::WrongType(ConfigKey key, std::string_view wanted, const Json& value) {
  Refuse(key, "must be " + std::string(wanted) + ", not " + ShowJson(value));
}

void ConfigSection::Bool(ConfigKey key, bool& out) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  if (!value->is_boolean()) return WrongType(key, "true or false", *value);
  out = value->get<bool>();
}

void ConfigSection::Number(ConfigKey key, ConfigRange<double> range, double& out) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  if (!value->is_number()) return WrongType(key, "a number", *value);
  const double number = value->get<double>();
  if (number < range.low || number > range.high) {
    return Refuse(key, "must be " + ShowNumber(range.low) + " to " + ShowNumber(range.high) +
                           ", not " + ShowJson(*value));
  }
  out = number;
}

bool ConfigSection::ReadInteger(ConfigKey key, ConfigRange<int64_t> range, int64_t& out) {
  const Json* value = Take(key);
  if (value == nullptr) return false;
  const std::optional<int64_t> number = AsInteger(*value);
  if (!number) {
    WrongType(key, "a whole number", *value);
    return false;
  }
  if (*number < range.low || *number > range.high) {
    const bool open = range.high == INT64_MAX;
    Refuse(key, "must be " +
                    (open ? "at least " + std::to_string(range.low)
                          : std::to_string(range.low) + " to " + std::to_string(range.high)) +
                    ", not " + ShowJson(*value));
    return false;
  }
  out = *number;
  return true;
}

int ConfigSection::ReadWord(ConfigKey key, std::span<const std::string_view> words) {
  const Json* value = Take(key);
  if (value == nullptr) return -1;
  if (!value->is_string()) {
    WrongType(key, Listed(words), *value);
    return -1;
  }
  const std::string word = Lower(value->get_ref<const std::string&>());
  for (size_t i = 0; i < words.size(); ++i) {
    if (Lower(words[i]) == word) return static_cast<int>(i);
  }
  WrongType(key, Listed(words), *value);
  return -1;
}

void ConfigSection::Pair(ConfigKey key, ConfigRange<double> range, double& first, double& second) {
  const Json* value = Take(key);
  if (value == nullptr) return;
  const bool fits =
      value->is_array() && value->size() == 2 && (*value)[0].is_number() && (*value)[1].is_number();
  if (!fits) return WrongType(key, "a list of two numbers", *value);
  for (const Json& number : *value) {
    if (number.get<double>() >= range.low && number.get<double>() <= range.high) continue;
    return Refuse(key, "must hold numbers from " + ShowNumber(range.low) + " to " +
                           ShowNumber(range.high) + ", not " + ShowJson(number));
  }
  first = (*value)[0].get<double>();
  second = (*value)[1].get<double>();
}

ConfigSection ConfigSection::Section(ConfigKey key) {
  const Json* value = Take(key);
  if (value != nullptr && !value->is_object()) {
    WrongType(key, "an object", *value);
    value = nullptr;
  }
  const std::string name(key.name);  // also when it goes by its alias: the tables of keys know it
  return {*text_, value, pointer_ + JsonPointerStep(Given(key)),
          path_.empty() ? name : path_ + '.' + name};
}

ConfigSection ConfigSection::SectionOrBool(ConfigKey key, bool& out) {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_boolean()) return Section(key);
  known_.emplace(key.name);
  out = value->get<bool>();
  return {*text_, nullptr, pointer_, path_};
}

const Json* ConfigSection::Raw(ConfigKey key) { return Take(key); }

std::string ConfigSection::Place(std::string_view key) const {
  const std::string shown = Printable(key);
  return text_->Where(pointer_ + JsonPointerStep(key)) +
         (path_.empty() ? shown : path_ + '.' + shown) + ' ';
}

void ConfigSection::Refuse(ConfigKey key, const std::string& sentence) {
  if (text_->status.ok()) text_->status = InvalidArgument(Place(Given(key)) + sentence);
}

void ConfigSection::RefuseAll(const std::string& sentence) {
  if (text_->status.ok()) text_->status = InvalidArgument(text_->Where(pointer_) + sentence);
}

void ConfigSection::Note(ConfigKey key, const std::string& sentence) {
  text_->notes.push_back(Place(Given(key)) + sentence);
}

void ConfigSection::NoteIfGiven(std::initializer_list<ConfigKey> keys,
                                const std::string& sentence) {
  for (const ConfigKey& key : keys) {
    if (Has(key)) Note(key, sentence);
  }
}

void ConfigSection::Finish() {
  if (object_ == nullptr) return;
  for (const auto& [key, value] : object_->items()) {
    if (!known_.contains(key)) FinishKey(key, value);
  }
}

void ConfigSection::FinishKey(const std::string& key, const Json& value) {
  if (!text_->status.ok()) return;
  const InertKey* inert = FindInertKey(path_, key);
  if (inert == nullptr) {
    text_->status =
        InvalidArgument(Place(key) + "is not a known key" + Suggestion(path_, key, known_));
    return;
  }
  if (IsQuiet(*inert, value)) return;
  const std::string message = Place(key) + std::string(inert->sentence);
  switch (inert->effect) {
    case InertEffect::kNoted:
      text_->notes.push_back(message);
      break;
    case InertEffect::kRefused:
      text_->status = InvalidArgument(message);
      break;
  }
}

}  // namespace zpp
