#include "common/strict_json.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace zpp {
namespace {

using Json = nlohmann::json;

// Watches the parser. After the first fault it asks for nothing to be kept.
class Watcher {
 public:
  explicit Watcher(int max_depth) : max_depth_(max_depth) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    if (!fault_.empty()) return false;
    switch (event) {
      case Json::parse_event_t::object_start:
        keys_.emplace_back();
        return CheckDepth(depth);
      case Json::parse_event_t::array_start:
        return CheckDepth(depth);
      case Json::parse_event_t::object_end:
        keys_.pop_back();
        return true;
      case Json::parse_event_t::key:
        return CheckKey(value.get_ref<const std::string&>());
      case Json::parse_event_t::array_end:
      case Json::parse_event_t::value:
        return true;
    }
    return true;
  }
  const std::string& fault() const { return fault_; }

 private:
  bool CheckDepth(int depth) {
    if (depth < max_depth_) return true;
    fault_ = "JSON is nested deeper than " + std::to_string(max_depth_) + " levels";
    return false;
  }
  bool CheckKey(const std::string& key) {
    if (keys_.back().insert(key).second) return true;
    fault_ = "JSON has the key '" + Printable(key) + "' twice in one object";
    return false;
  }

  int max_depth_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::string fault_;
};

std::string Place(std::string_view text, size_t byte) {
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

Result<Json> ParseStrictJson(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return DataLoss("JSON of " + std::to_string(text.size()) +
                    " bytes is longer than the limit of " + std::to_string(limits.max_bytes));
  }
  Watcher watcher(limits.max_depth);
  try {
    Json json = Json::parse(text.begin(), text.end(), std::ref(watcher));
    if (!watcher.fault().empty()) return DataLoss(watcher.fault());
    return json;
  } catch (const Json::parse_error& error) {
    if (!watcher.fault().empty()) return DataLoss(watcher.fault());
    return DataLoss("not valid JSON at " + Place(text, error.byte) + ": " + Reason(error.what()));
  } catch (const Json::exception& error) {
    return DataLoss("not valid JSON: " + Reason(error.what()));
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, "no memory to parse the JSON");
  }
}

}  // namespace zpp
