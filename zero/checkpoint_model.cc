// A model's names and shapes as text: {"name":[sizes],...}, sorted by name.
#include <nlohmann/json.hpp>

#include "common/strict_json.h"
#include "zero/checkpoint.h"
#include "zero/internal/checkpoint_manifest.h"

namespace zpp {
namespace {

using Json = nlohmann::json;

// Null for a fingerprint that somebody else made up.
Json Parse(const std::string& fingerprint) {
  const auto limit = static_cast<size_t>(internal::kMaxManifestBytes);
  auto json = ParseStrictJson(fingerprint, {.max_bytes = limit});
  return json.ok() && json->is_object() ? *std::move(json) : Json();
}

// "(3, 4)"; a shape that is none is shown as it stands.
std::string Text(const Json& shape) {
  std::string text = "(";
  for (const Json& size : shape) text += (text.size() > 1 ? ", " : "") + size.dump();
  return Printable(text + ")");
}

Status Other(const std::string& sentence) {
  return InvalidArgument("the checkpoint is of another model: " + sentence);
}

}  // namespace

std::string ModelFingerprint(std::span<const ModelTensor> tensors) {
  Json model = Json::object();
  for (const ModelTensor& tensor : tensors) model[tensor.name] = tensor.shape;
  return model.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Status CheckSameModel(const std::string& saved_fingerprint, const std::string& own_fingerprint) {
  if (saved_fingerprint == own_fingerprint) return {};
  const Json saved = Parse(saved_fingerprint), own = Parse(own_fingerprint);
  if (!saved.is_object() || !own.is_object()) return Other("their fingerprints differ");
  for (const auto& [name, shape] : own.items()) {
    const std::string called = "'" + Printable(name) + "'";
    if (!saved.contains(name)) return Other("it has no tensor " + called + " " + Text(shape));
    if (saved[name] == shape) continue;
    return Other(called + " is " + Text(saved[name]) + " in it, " + Text(shape) + " here");
  }
  for (const auto& [name, shape] : saved.items()) {
    if (own.contains(name)) continue;
    return Other("its tensor '" + Printable(name) + "' " + Text(shape) + " is not here");
  }
  return Other("their fingerprints differ");
}

}  // namespace zpp
