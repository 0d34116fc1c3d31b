#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/strict_json.h"
#include "zero/checkpoint.h"
#include "zero/internal/checkpoint_checksum.h"
#include "zero/internal/checkpoint_contents.h"
#include "zero/internal/checkpoint_folder.h"
#include "zero/internal/checkpoint_shard.h"
#include "zero/internal/checkpoint_team.h"

namespace zpp {
namespace {

using internal::Manifest;
using internal::SavedPiece;
using internal::Team;
using internal::WrittenShard;
using Json = nlohmann::json;

// What the rank that leads must know of another one's file.
Json ToJson(const WrittenShard& shard, std::span<const StatePiece> pieces) {
  Json list = Json::array();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const SavedPiece& piece = shard.pieces[i];
    if (piece.elems == 0) continue;
    list.push_back(
        {pieces[i].name, piece.first_elem, piece.offset_bytes, internal::ToHex(piece.checksums)});
  }
  return {{"file", shard.file.file},
          {"bytes", shard.file.file_bytes},
          {"header_bytes", shard.file.header_bytes},
          {"header_xxh64", shard.file.header_checksum},
          {"pieces", std::move(list)}};
}

// The pieces are those that were announced; only places and checksums are new.
Status PutPiece(int rank, const Json& json, Manifest& manifest) {
  auto& pieces = manifest.tensors.at(json[0]).pieces;
  const auto first = json[1].get<int64_t>();
  const auto it = std::lower_bound(
      pieces.begin(), pieces.end(), first,
      [](const SavedPiece& piece, int64_t elem) { return piece.first_elem < elem; });
  if (it == pieces.end() || it->first_elem != first || it->shard != rank) {
    return Internal("rank " + std::to_string(rank) + " wrote a piece of '" +
                    Printable(json[0].get<std::string>()) + "' that it had not announced");
  }
  it->offset_bytes = json[2].get<int64_t>();
  it->checksums = internal::FromHex(json[3].get<std::string>()).value_or(std::vector<uint64_t>());
  return {};
}

Status PutShards(const std::vector<Json>& ranks, Manifest& manifest) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Json& json = ranks[rank];
    manifest.shards.push_back({.file = json["file"],
                               .file_bytes = json["bytes"],
                               .header_bytes = json["header_bytes"],
                               .header_checksum = json["header_xxh64"]});
    for (const Json& piece : json["pieces"]) {
      ZPP_RETURN_IF_ERROR(PutPiece(static_cast<int>(rank), piece, manifest));
    }
  }
  return {};
}

// On the rank that leads. What Open() would refuse is not published.
Status Publish(const std::vector<Json>& ranks, int keep_last, Manifest& manifest,
               internal::SaveFolder& folder) {
  ZPP_RETURN_IF_ERROR(PutShards(ranks, manifest));
  ZPP_ASSIGN_OR_RETURN(const std::string text, internal::ManifestText(manifest));
  const auto read_back = internal::ParseManifest(text);
  if (!read_back.ok()) return Internal("the manifest " + read_back.status().message());
  return folder.Publish(text, keep_last);
}

}  // namespace

Status SaveCheckpoint(Communicator& comm, const std::string& dir, const CheckpointMeta& meta,
                      std::span<const StatePiece> pieces, const SaveOptions& options) {
  Team team(comm, options.patience_s);
  ZPP_ASSIGN_OR_RETURN(Manifest manifest, internal::AgreeOnContents(team, meta, pieces));

  std::optional<internal::SaveFolder> folder;
  Status begun;
  if (options.keep_last < 0) {
    begun = InvalidArgument("keep_last is " + std::to_string(options.keep_last));
  } else if (team.leads()) {
    auto made = internal::SaveFolder::Begin(dir, meta.step, manifest.id);
    begun = made.status();
    if (made.ok()) folder.emplace(*std::move(made));
  }
  ZPP_RETURN_IF_ERROR(team.Agree(begun));

  const internal::ShardIdentity identity = {
      .id = manifest.id, .step = meta.step, .rank = team.rank(), .world = team.world()};
  const auto shard = internal::WriteShard(dir + "/" + internal::TempName(meta.step, manifest.id),
                                          identity, pieces);
  ZPP_ASSIGN_OR_RETURN(const std::vector<Json> ranks,
                       team.Gather(shard.status(), shard.ok() ? ToJson(*shard, pieces) : Json()));

  Status published;
  if (team.leads()) published = Publish(ranks, options.keep_last, manifest, *folder);
  return team.Agree(published);
}

}  // namespace zpp
