#include "zero/internal/checkpoint_contents.h"

#include <nlohmann/json.hpp>
#include <random>

#include "common/strict_json.h"
#include "zero/internal/checkpoint_checksum.h"

namespace zpp::internal {
namespace {

using Json = nlohmann::json;

Status CheckPiece(const StatePiece& piece) {
  const std::string name = "'" + Printable(piece.name) + "'";
  if (piece.name.empty()) return InvalidArgument("a piece has no name");
  if (piece.dtype > DType::kByte) return InvalidArgument(name + " has an unknown type");
  if (!ElemsOf(piece.shape, piece.dtype)) {
    return InvalidArgument(name + " has the impossible shape " + ShapeText(piece.shape));
  }
  if (piece.elems < 0) {
    return InvalidArgument("a piece of " + name + " has " + std::to_string(piece.elems) +
                           " elements");
  }
  if (piece.elems == 0 || piece.data != nullptr) return {};
  return InvalidArgument("the data of " + name + " is null");
}

// [name, type, shape, first_elem, elems, partial]
Json PieceJson(const StatePiece& piece) {
  return Json::array({piece.name, static_cast<int>(piece.dtype), piece.shape, piece.first_elem,
                      piece.elems, piece.partial});
}

Status CheckText(const CheckpointMeta& meta, const Json& pieces) {
  try {
    (void)pieces.dump();
  } catch (const Json::exception&) {
    return InvalidArgument("a tensor's name is not UTF-8");
  }
  // The manifest must be one that Open() reads.
  Manifest manifest;
  manifest.meta = meta;
  manifest.shards.push_back({.file = "none"});
  ZPP_ASSIGN_OR_RETURN(const std::string text, ManifestText(manifest));
  const auto read_back = ParseManifest(text);
  if (read_back.ok()) return {};
  return InvalidArgument("the state or a text cannot be saved: " + read_back.status().message());
}

Status CheckOwn(const CheckpointMeta& meta, std::span<const StatePiece> pieces,
                const Json& announced) {
  if (meta.step < 0) return InvalidArgument("step " + std::to_string(meta.step) + " is negative");
  for (const StatePiece& piece : pieces) ZPP_RETURN_IF_ERROR(CheckPiece(piece));
  return CheckText(meta, announced);
}

// One tensor as two ranks know it.
Status CheckAlike(const std::string& name, const SavedTensor& known, const SavedTensor& other) {
  if (known.dtype == other.dtype && known.shape == other.shape && known.partial == other.partial) {
    return {};
  }
  return InvalidArgument("rank " + std::to_string(other.pieces.front().shard) + " has '" +
                         Printable(name) + "' as " + std::string(DTypeName(other.dtype)) + " " +
                         ShapeText(other.shape) + ", rank " +
                         std::to_string(known.pieces.front().shard) + " as " +
                         std::string(DTypeName(known.dtype)) + " " + ShapeText(known.shape) +
                         (known.partial != other.partial ? ", and only one as partial" : ""));
}

Status AddPiece(int rank, const Json& json, Manifest& manifest) {
  const std::string name = json[0];
  SavedTensor tensor = {
      .dtype = static_cast<DType>(json[1].get<int>()),
      .shape = json[2].get<std::vector<int64_t>>(),
      .partial = json[5].get<bool>(),
      .pieces = {
          {.shard = rank, .first_elem = json[3].get<int64_t>(), .elems = json[4].get<int64_t>()}}};
  tensor.elems = ElemsOf(tensor.shape, tensor.dtype).value_or(0);
  const auto [it, is_new] = manifest.tensors.try_emplace(name, tensor);
  if (is_new) return {};
  ZPP_RETURN_IF_ERROR(CheckAlike(name, it->second, tensor));
  it->second.pieces.push_back(tensor.pieces.front());
  return {};
}

Status CheckSameSave(const std::vector<Json>& ranks) {
  for (size_t r = 1; r < ranks.size(); ++r) {
    const std::string who = "rank " + std::to_string(r);
    if (ranks[r]["step"] != ranks[0]["step"]) {
      return {StatusCode::kMismatch, who + " saves step " + ranks[r]["step"].dump() +
                                         ", rank 0 step " + ranks[0]["step"].dump()};
    }
    if (ranks[r]["model"] != ranks[0]["model"]) {
      return {StatusCode::kMismatch, who + " saves another model than rank 0"};
    }
  }
  return {};
}

std::string DrawId() {
  std::random_device entropy;
  return ToHex((uint64_t{entropy()} << 32) | entropy());
}

}  // namespace

Result<Manifest> AgreeOnContents(Team& team, const CheckpointMeta& meta,
                                 std::span<const StatePiece> pieces) {
  Json announced = Json::array();
  for (const StatePiece& piece : pieces) announced.push_back(PieceJson(piece));
  const Status own = CheckOwn(meta, pieces, announced);
  const Json value = {{"id", DrawId()},
                      {"step", meta.step},
                      {"model", ToHex(Checksum(meta.model_fingerprint))},
                      {"pieces", std::move(announced)}};
  ZPP_ASSIGN_OR_RETURN(const std::vector<Json> ranks, team.Gather(own, value));
  ZPP_RETURN_IF_ERROR(CheckSameSave(ranks));
  Manifest manifest;
  manifest.id = ranks[0]["id"];
  manifest.meta = meta;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Json& piece : ranks[rank]["pieces"]) {
      ZPP_RETURN_IF_ERROR(AddPiece(static_cast<int>(rank), piece, manifest));
    }
  }
  for (auto& [name, tensor] : manifest.tensors) {
    std::erase_if(tensor.pieces, [](const SavedPiece& piece) { return piece.elems == 0; });
    ZPP_RETURN_IF_ERROR(SortAndCheckPieces(name, tensor));
  }
  return manifest;
}

}  // namespace zpp::internal
