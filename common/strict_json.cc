#include "common/strict_json.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace zpp {
namespace {

using Json = nlohmann::json;

// The parser's input. Counts the line breaks that have been read: a key's event comes when its last
// character has just been read, and a key holds no line break.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, int* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *line_ += *at_ == '\n';
    ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  int* line_;
};

// Watches the parser. After the first fault it asks for nothing to be kept.
class Watcher {
 public:
  Watcher(int max_depth, const int* line, JsonLines* lines)
      : max_depth_(max_depth), line_(line), lines_(lines) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    if (!fault_.empty()) return false;
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (lines_) Enter(event == Json::parse_event_t::array_start);
        keys_.emplace_back();
        return CheckDepth(depth);
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        keys_.pop_back();
        if (lines_) places_.pop_back();
        return true;
      case Json::parse_event_t::key:
        return CheckKey(value.get_ref<const std::string&>());
      case Json::parse_event_t::value:
        if (lines_) CountItem();
        return true;
    }
    return true;
  }
  const std::string& fault() const { return fault_; }

 private:
  // An object or array that is open.
  struct Place {
    std::string pointer;   // to it
    int next_item = -1;    // of an array; -1 in an object
    std::string key = {};  // of an object: the one whose value comes next
  };

  bool CheckDepth(int depth) {
    if (depth < max_depth_) return true;
    fault_ = "JSON is nested deeper than " + std::to_string(max_depth_) + " levels";
    return false;
  }
  bool CheckKey(const std::string& key) {
    if (!keys_.back().insert(key).second) {
      fault_ = "JSON has the key '" + Printable(key) + "' twice in one object, again on line " +
               std::to_string(*line_);
      return false;
    }
    if (lines_) {
      places_.back().key = key;
      lines_->emplace(places_.back().pointer + JsonPointerStep(key), *line_);
    }
    return true;
  }
  void Enter(bool array) {
    std::string pointer;
    if (!places_.empty()) {
      const Place& parent = places_.back();
      pointer =
          parent.pointer +
          JsonPointerStep(parent.next_item < 0 ? parent.key : std::to_string(parent.next_item));
      CountItem();
    }
    places_.push_back({.pointer = std::move(pointer), .next_item = array ? 0 : -1});
  }
  void CountItem() {
    if (!places_.empty() && places_.back().next_item >= 0) ++places_.back().next_item;
  }

  int max_depth_;
  const int* line_;  // that is being read
  JsonLines* lines_;
  std::vector<std::set<std::string>> keys_;  // of what is open; none in an array
  std::vector<Place> places_;                // the same, when lines are asked for
  std::string fault_;
};

std::string LineAndColumn(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t last_break = before.rfind('\n');
  const size_t column = last_break == before.npos ? before.size() : before.size() - last_break - 1;
  return "line " + std::to_string(line) + ", column " + std::to_string(std::max(column, size_t{1}));
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ... - reason":
// the reason.
std::string Reason(std::string_view what) {
  const size_t syntax = what.find("syntax error");
  const size_t dash = syntax == what.npos ? what.npos : what.find(" - ", syntax);
  if (dash != what.npos) return Printable(what.substr(dash + 3), 120);
  const size_t bracket = what.find("] ");
  return Printable(bracket == what.npos ? what : what.substr(bracket + 2), 120);
}

}  // namespace

std::string Printable(std::string_view text, size_t max_chars) {
  std::string printable(text.substr(0, max_chars));
  for (char& c : printable) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > max_chars ? printable + "..." : printable;
}

std::string JsonPointerStep(std::string_view key) {
  std::string step = "/";
  for (char c : key) {
    if (c == '~') {
      step += "~0";
    } else if (c == '/') {
      step += "~1";
    } else {
      step += c;
    }
  }
  return step;
}

Result<Json> ParseStrictJson(std::string_view text, const JsonLimits& limits, JsonLines* lines) {
  if (text.size() > limits.max_bytes) {
    return DataLoss("JSON of " + std::to_string(text.size()) +
                    " bytes is longer than the limit of " + std::to_string(limits.max_bytes));
  }
  int line = 1;
  JsonLines found;
  Watcher watcher(limits.max_depth, &line, lines ? &found : nullptr);
  try {
    Json json = Json::parse(CountingIterator(text.data(), &line),
                            CountingIterator(text.data() + text.size(), &line), std::ref(watcher));
    if (!watcher.fault().empty()) return DataLoss(watcher.fault());
    if (lines) lines->swap(found);
    return json;
  } catch (const Json::parse_error& error) {
    if (!watcher.fault().empty()) return DataLoss(watcher.fault());
    return DataLoss("not valid JSON at " + LineAndColumn(text, error.byte) + ": " +
                    Reason(error.what()));
  } catch (const Json::exception& error) {
    return DataLoss("not valid JSON: " + Reason(error.what()));
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, "no memory to parse the JSON");
  }
}

}  // namespace zpp
