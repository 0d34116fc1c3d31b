// A manifest's fields from JSON. The checksum holds, but whoever wrote it may have been wrong:
// every number is checked before it is used.
#include <limits>
#include <nlohmann/json.hpp>

#include "common/strict_json.h"
#include "zero/internal/checkpoint_checksum.h"
#include "zero/internal/checkpoint_manifest_fields.h"

namespace zpp::internal {
namespace {

using Json = nlohmann::json;

// Where in the manifest a value stands, for messages.
Status Bad(const std::string& where, const std::string& what) {
  return DataLoss(where + " " + what);
}

Result<const Json*> Field(const Json& object, const char* key, const std::string& where) {
  if (!object.is_object()) return Bad(where, "is not an object");
  const auto it = object.find(key);
  if (it == object.end()) return Bad(where, "has no '" + std::string(key) + "'");
  return &*it;
}

Result<int64_t> Count(const Json& value, const std::string& where) {
  const bool counts =
      value.is_number_unsigned() &&
      value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!counts) return Bad(where, "is not a count");
  return value.get<int64_t>();
}

Result<int64_t> CountField(const Json& object, const char* key, const std::string& where) {
  ZPP_ASSIGN_OR_RETURN(const Json* value, Field(object, key, where));
  return Count(*value, "'" + std::string(key) + "' of " + where);
}

Result<std::string> TextField(const Json& object, const char* key, const std::string& where) {
  ZPP_ASSIGN_OR_RETURN(const Json* value, Field(object, key, where));
  if (!value->is_string()) return Bad("'" + std::string(key) + "' of " + where, "is not a text");
  return value->get<std::string>();
}

Result<std::string> ReadUser(const Json& json) {
  if (!json.contains("user_hex")) return TextField(json, "user", "the manifest");
  ZPP_ASSIGN_OR_RETURN(const std::string digits, TextField(json, "user_hex", "the manifest"));
  std::string user;
  for (size_t i = 0; i < digits.size(); i += 2) {
    const auto byte = FromHex(std::string(14, '0') + digits.substr(i, 2));
    if (!byte || byte->empty()) return Bad("'user_hex'", "is not a row of hex bytes");
    user += static_cast<char>(byte->front());
  }
  return user;
}

Result<ShardFile> ReadShard(const Json& json, size_t index) {
  const std::string where = "shard " + std::to_string(index);
  ShardFile shard;
  ZPP_ASSIGN_OR_RETURN(shard.file, TextField(json, "file", where));
  ZPP_ASSIGN_OR_RETURN(shard.file_bytes, CountField(json, "bytes", where));
  ZPP_ASSIGN_OR_RETURN(shard.header_bytes, CountField(json, "header_bytes", where));
  ZPP_ASSIGN_OR_RETURN(const std::string digits, TextField(json, "header_xxh64", where));
  if (shard.file.empty() || shard.file.find('/') != shard.file.npos || shard.file.front() == '.') {
    return Bad(where, "has a file name that leads elsewhere");
  }
  if (shard.header_bytes > shard.file_bytes) return Bad(where, "has a header beyond its end");
  const auto checksum = FromHex(digits);
  if (!checksum || checksum->size() != 1) return Bad(where, "has no checksum of its header");
  shard.header_checksum = checksum->front();
  return shard;
}

// [shard, first_elem, elems, offset_bytes, checksums]
Result<SavedPiece> ReadPiece(const Json& json, const Manifest& manifest, const SavedTensor& tensor,
                             const std::string& where) {
  if (!json.is_array() || json.size() != 5 || !json[4].is_string()) {
    return Bad(where, "is not a piece");
  }
  SavedPiece piece;
  ZPP_ASSIGN_OR_RETURN(const int64_t shard, Count(json[0], where));
  ZPP_ASSIGN_OR_RETURN(piece.first_elem, Count(json[1], where));
  ZPP_ASSIGN_OR_RETURN(piece.elems, Count(json[2], where));
  ZPP_ASSIGN_OR_RETURN(piece.offset_bytes, Count(json[3], where));
  if (shard >= static_cast<int64_t>(manifest.shards.size())) return Bad(where, "has no shard");
  piece.shard = static_cast<int>(shard);
  if (piece.elems == 0 || piece.elems > tensor.elems) return Bad(where, "has an impossible size");
  const ShardFile& file = manifest.shards[static_cast<size_t>(shard)];
  const int64_t bytes = piece.elems * SizeOf(tensor.dtype);
  if (piece.offset_bytes < file.header_bytes || bytes > file.file_bytes ||
      piece.offset_bytes > file.file_bytes - bytes) {
    return Bad(where, "lies outside of " + Printable(file.file));
  }
  auto checksums = FromHex(json[4].get_ref<const std::string&>());
  const int64_t chunks = (bytes - 1) / manifest.chunk_bytes + 1;
  if (!checksums || static_cast<int64_t>(checksums->size()) != chunks) {
    return Bad(where, "does not have the checksums of its " + std::to_string(chunks) + " chunks");
  }
  piece.checksums = *std::move(checksums);
  return piece;
}

Status ReadShape(const Json& json, const std::string& where, SavedTensor& tensor) {
  ZPP_ASSIGN_OR_RETURN(const Json* shape, Field(json, "shape", where));
  if (!shape->is_array()) return Bad(where, "has no shape");
  for (const Json& n : *shape) {
    ZPP_ASSIGN_OR_RETURN(const int64_t size, Count(n, "the shape of " + where));
    tensor.shape.push_back(size);
  }
  const auto elems = ElemsOf(tensor.shape, tensor.dtype);
  if (!elems) return Bad(where, "has a shape whose size overflows");
  tensor.elems = *elems;
  return {};
}

Result<SavedTensor> ReadTensor(const std::string& name, const Json& json,
                               const Manifest& manifest) {
  const std::string where = "tensor '" + Printable(name) + "'";
  SavedTensor tensor;
  ZPP_ASSIGN_OR_RETURN(const std::string type, TextField(json, "dtype", where));
  const auto dtype = ParseDType(type);
  if (!dtype.ok()) return Bad(where, "has the unknown type '" + Printable(type) + "'");
  tensor.dtype = *dtype;
  ZPP_RETURN_IF_ERROR(ReadShape(json, where, tensor));
  tensor.partial = json.contains("partial") && json["partial"] == true;
  ZPP_ASSIGN_OR_RETURN(const Json* pieces, Field(json, "pieces", where));
  if (!pieces->is_array()) return Bad(where, "has no pieces");
  for (const Json& item : *pieces) {
    const std::string at = "piece " + std::to_string(tensor.pieces.size()) + " of " + where;
    ZPP_ASSIGN_OR_RETURN(SavedPiece piece, ReadPiece(item, manifest, tensor, at));
    tensor.pieces.push_back(std::move(piece));
  }
  const Status covered = SortAndCheckPieces(name, tensor);
  return covered.ok() ? Result<SavedTensor>(std::move(tensor)) : DataLoss(covered.message());
}

Status ReadShards(const Json& json, Manifest& manifest) {
  ZPP_ASSIGN_OR_RETURN(const Json* shards, Field(json, "shards", "the manifest"));
  if (!shards->is_array() || shards->empty()) return Bad("the manifest", "has no shards");
  for (const Json& item : *shards) {
    ZPP_ASSIGN_OR_RETURN(ShardFile shard, ReadShard(item, manifest.shards.size()));
    manifest.shards.push_back(std::move(shard));
  }
  return {};
}

Status ReadTensors(const Json& json, Manifest& manifest) {
  ZPP_ASSIGN_OR_RETURN(const Json* tensors, Field(json, "tensors", "the manifest"));
  if (!tensors->is_object()) return Bad("the manifest", "has no tensors");
  for (const auto& item : tensors->items()) {
    ZPP_ASSIGN_OR_RETURN(SavedTensor tensor, ReadTensor(item.key(), item.value(), manifest));
    manifest.tensors.emplace(item.key(), std::move(tensor));
  }
  return {};
}

}  // namespace

Result<Manifest> ReadManifestFields(const Json& json) {
  const std::string where = "the manifest";
  Manifest manifest;
  ZPP_ASSIGN_OR_RETURN(manifest.id, TextField(json, "id", where));
  ZPP_ASSIGN_OR_RETURN(manifest.meta.step, CountField(json, "step", where));
  ZPP_ASSIGN_OR_RETURN(manifest.meta.model_fingerprint, TextField(json, "model", where));
  ZPP_ASSIGN_OR_RETURN(const Json* state, Field(json, "state", where));
  manifest.meta.state = *state;
  ZPP_ASSIGN_OR_RETURN(manifest.meta.user, ReadUser(json));
  ZPP_ASSIGN_OR_RETURN(manifest.chunk_bytes, CountField(json, "chunk_bytes", where));
  if (manifest.chunk_bytes < 1 || manifest.chunk_bytes > (int64_t{1} << 26)) {
    return Bad("'chunk_bytes'", "is not in 1 to 64 MiB");
  }
  ZPP_RETURN_IF_ERROR(ReadShards(json, manifest));
  ZPP_RETURN_IF_ERROR(ReadTensors(json, manifest));
  return manifest;
}

}  // namespace zpp::internal
