#include "zero/internal/checkpoint_manifest.h"

#include <nlohmann/json.hpp>

#include "common/file.h"
#include "common/strict_json.h"
#include "zero/internal/checkpoint_checksum.h"
#include "zero/internal/checkpoint_folder.h"
#include "zero/internal/checkpoint_manifest_fields.h"

namespace zpp::internal {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "zpp checkpoint";
constexpr size_t kDigits = 16;

// Ends where the checksum's digits begin.
std::string Preamble(int version) {
  return "{\"format\":\"" + std::string(kFormat) + "\",\"version\":" + std::to_string(version) +
         ",\"xxh64\":\"";
}

Json PieceJson(const SavedPiece& piece) {
  return Json::array(
      {piece.shard, piece.first_elem, piece.elems, piece.offset_bytes, ToHex(piece.checksums)});
}

Json TensorJson(const SavedTensor& tensor) {
  Json pieces = Json::array();
  for (const SavedPiece& piece : tensor.pieces) pieces.push_back(PieceJson(piece));
  Json json = {{"dtype", DTypeName(tensor.dtype)}, {"shape", tensor.shape}, {"pieces", pieces}};
  if (tensor.partial) json["partial"] = true;
  return json;
}

Json ShardJson(const ShardFile& shard) {
  return {{"file", shard.file},
          {"bytes", shard.file_bytes},
          {"header_bytes", shard.header_bytes},
          {"header_xxh64", ToHex(shard.header_checksum)}};
}

// Readable where it is text, in hex where it is not.
void PutUser(const std::string& user, Json& body) {
  try {
    (void)Json(user).dump();
    body["user"] = user;
  } catch (const Json::exception&) {
    std::string digits;
    for (const char c : user) digits += ToHex(static_cast<unsigned char>(c)).substr(kDigits - 2);
    body["user_hex"] = digits;
  }
}

Json BodyJson(const Manifest& manifest) {
  Json body = {{"id", manifest.id},
               {"step", manifest.meta.step},
               {"model", manifest.meta.model_fingerprint},
               {"state", manifest.meta.state},
               {"chunk_bytes", manifest.chunk_bytes},
               {"shards", Json::array()},
               {"tensors", Json::object()}};
  PutUser(manifest.meta.user, body);
  for (const ShardFile& shard : manifest.shards) body["shards"].push_back(ShardJson(shard));
  for (const auto& [name, tensor] : manifest.tensors) body["tensors"][name] = TensorJson(tensor);
  return body;
}

Status CheckVersion(const Json& json) {
  if (!json.is_object() || !json.contains("format") || json["format"] != kFormat) {
    return DataLoss("not the manifest of a zpp checkpoint");
  }
  if (!json.contains("version") || !json["version"].is_number_unsigned()) {
    return DataLoss("it has no version");
  }
  const auto version = json["version"].get<uint64_t>();
  if (version <= kCheckpointVersion) return {};
  return {StatusCode::kUnimplemented, "format version " + std::to_string(version) +
                                          ", but this zpp reads version " +
                                          std::to_string(kCheckpointVersion)};
}

Status CheckSeal(std::string_view text) {
  if (text == Seal(std::string(text))) return {};
  return DataLoss("its checksum is not that of its text");
}

}  // namespace

std::string Seal(std::string text) {
  const size_t at = Preamble(kCheckpointVersion).size();
  if (text.size() < at + kDigits) return text;
  text.replace(at, kDigits, kDigits, '0');
  return text.replace(at, kDigits, ToHex(Checksum(text)));
}

Result<std::string> ManifestText(const Manifest& manifest) {
  try {
    const std::string body = BodyJson(manifest).dump();
    return Seal(Preamble(kCheckpointVersion) + std::string(kDigits, '0') + "\"," + body.substr(1) +
                "\n");
  } catch (const Json::exception&) {
    return InvalidArgument("a name, the fingerprint or the state holds text that is not UTF-8");
  }
}

Result<Manifest> ParseManifest(std::string_view text) {
  const JsonLimits limits = {.max_bytes = kMaxManifestBytes, .max_depth = 64};
  ZPP_ASSIGN_OR_RETURN(const Json json, ParseStrictJson(text, limits));
  ZPP_RETURN_IF_ERROR(CheckVersion(json));
  ZPP_RETURN_IF_ERROR(CheckSeal(text));
  return ReadManifestFields(json);
}

Result<Manifest> ReadManifest(const std::string& folder) {
  ZPP_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(folder + "/" + kManifestName));
  const auto wrong = [&](const Status& why) {
    return Status(why.code(), "'" + file.path() + "': " + why.message());
  };
  if (file.size_bytes() > kMaxManifestBytes) return wrong(DataLoss("it is larger than 1 GiB"));
  std::string text(static_cast<size_t>(file.size_bytes()), '\0');
  ZPP_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  auto manifest = ParseManifest(text);
  return manifest.ok() ? std::move(manifest) : wrong(manifest.status());
}

}  // namespace zpp::internal
