#include "zero/internal/checkpoint_shard.h"

#include <algorithm>
#include <map>

#include "common/safetensors_writer.h"
#include "common/strict_json.h"
#include "zero/internal/checkpoint_checksum.h"
#include "zero/internal/checkpoint_folder.h"

namespace zpp::internal {
namespace {

std::span<const std::byte> BytesOf(const StatePiece& piece) {
  return {static_cast<const std::byte*>(piece.data),
          static_cast<size_t>(piece.elems * SizeOf(piece.dtype))};
}

std::string NameOf(const StatePiece& piece) {
  return piece.name + "[" + std::to_string(piece.first_elem) + ":" +
         std::to_string(piece.first_elem + piece.elems) + "]";
}

TensorToStore Describe(const StatePiece& piece) {
  const bool whole = piece.elems == ElemsOf(piece.shape, piece.dtype);
  return {.name = NameOf(piece),
          .type = SafetensorsTypeOf(piece.dtype),
          .shape = whole ? piece.shape : std::vector<int64_t>{piece.elems}};
}

SafetensorsMetadata MetadataOf(const ShardIdentity& identity) {
  return {{"zpp_checkpoint", identity.id},
          {"zpp_step", std::to_string(identity.step)},
          {"zpp_rank", std::to_string(identity.rank)},
          {"zpp_world", std::to_string(identity.world)}};
}

// Writes a chunk while its bytes, just summed, are still in the cache.
Result<std::vector<uint64_t>> AppendSummed(std::span<const std::byte> bytes, size_t index,
                                           SafetensorsWriter& writer) {
  std::vector<uint64_t> checksums;
  while (!bytes.empty()) {
    const auto chunk = bytes.first(std::min<size_t>(bytes.size(), kChecksumChunkBytes));
    checksums.push_back(Checksum(chunk));
    ZPP_RETURN_IF_ERROR(writer.Append(index, chunk));
    bytes = bytes.subspan(chunk.size());
  }
  return checksums;
}

SavedPiece Unwritten(const StatePiece& piece, int rank) {
  return {.shard = rank, .first_elem = piece.first_elem, .elems = piece.elems};
}

// What the header that is now on the disk says.
Status LookUpOffsets(const std::string& path, std::span<const StatePiece> pieces,
                     WrittenShard& shard) {
  ZPP_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  ZPP_ASSIGN_OR_RETURN(const ShardHeader header, ReadShardHeader(file));
  shard.file.file_bytes = file.size_bytes();
  shard.file.header_bytes = header.bytes;
  shard.file.header_checksum = header.checksum;
  std::map<std::string_view, int64_t> offsets;
  for (const StoredTensor& tensor : header.fields.tensors) {
    offsets[tensor.name] = tensor.offset_bytes;
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].elems > 0) shard.pieces[i].offset_bytes = offsets[NameOf(pieces[i])];
  }
  return {};
}

Status Wrong(const InputFile& file, const std::string& what) {
  return DataLoss("'" + file.path() + "' " + what);
}

std::string Lookup(const SafetensorsMetadata& metadata, const char* key) {
  const auto it = metadata.find(key);
  return it == metadata.end() ? "?" : Printable(it->second, 24);
}

std::string Whose(const SafetensorsMetadata& metadata) {
  return "rank " + Lookup(metadata, "zpp_rank") + " of " + Lookup(metadata, "zpp_world") +
         " at step " + Lookup(metadata, "zpp_step");
}

}  // namespace

std::string SafetensorsTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kByte:
      return "U8";
  }
  return "U8";
}

std::string ToString(const ShardIdentity& identity) { return Whose(MetadataOf(identity)); }

Result<WrittenShard> WriteShard(const std::string& folder, const ShardIdentity& identity,
                                std::span<const StatePiece> pieces) {
  WrittenShard shard;
  shard.file.file = ShardName(identity.rank);
  std::vector<TensorToStore> tensors;
  for (const StatePiece& piece : pieces) {
    if (piece.elems > 0) tensors.push_back(Describe(piece));
  }
  const std::string path = folder + "/" + shard.file.file;
  ZPP_ASSIGN_OR_RETURN(auto writer, SafetensorsWriter::Create(path, tensors, MetadataOf(identity)));
  size_t index = 0;
  for (const StatePiece& piece : pieces) {
    shard.pieces.push_back(Unwritten(piece, identity.rank));
    if (piece.elems == 0) continue;
    ZPP_ASSIGN_OR_RETURN(shard.pieces.back().checksums,
                         AppendSummed(BytesOf(piece), index++, writer));
  }
  ZPP_RETURN_IF_ERROR(writer.Commit());
  ZPP_RETURN_IF_ERROR(LookUpOffsets(path, pieces, shard));
  return shard;
}

Result<ShardHeader> ReadShardHeader(const InputFile& file) {
  std::string text(
      static_cast<size_t>(std::min<int64_t>(file.size_bytes(), kSafetensorsLengthBytes)), '\0');
  const auto bytes = [&] { return std::as_writable_bytes(std::span(text.data(), text.size())); };
  ZPP_RETURN_IF_ERROR(file.ReadAt(0, bytes()));
  const auto json_bytes = SafetensorsHeaderBytes(bytes(), file.size_bytes());
  if (!json_bytes.ok()) return Wrong(file, "is damaged: " + json_bytes.status().message());
  text.resize(kSafetensorsLengthBytes + static_cast<size_t>(*json_bytes));
  ZPP_RETURN_IF_ERROR(file.ReadAt(0, bytes()));
  ShardHeader header;
  header.bytes = static_cast<int64_t>(text.size());
  header.checksum = Checksum(text);
  const std::string_view json = std::string_view(text).substr(kSafetensorsLengthBytes);
  auto fields = ParseSafetensorsHeader(json, file.size_bytes());
  if (!fields.ok()) return Wrong(file, "is damaged: " + fields.status().message());
  header.fields = *std::move(fields);
  return header;
}

Status CheckShard(const InputFile& file, const ShardFile& expected, const ShardIdentity& identity) {
  const auto header = ReadShardHeader(file);
  // A whole shard that is another one: say so before a difference in size would.
  if (header.ok() && header->fields.metadata != MetadataOf(identity)) {
    const bool other_save = Lookup(header->fields.metadata, "zpp_checkpoint") != identity.id;
    return Wrong(file, "is the shard of " + Whose(header->fields.metadata) +
                           (other_save ? ", saved by another job or at another time," : "") +
                           " where that of " + ToString(identity) + " belongs");
  }
  if (file.size_bytes() != expected.file_bytes) {
    return Wrong(file, "has " + std::to_string(file.size_bytes()) + " bytes, but " +
                           std::to_string(expected.file_bytes) + " were saved");
  }
  ZPP_RETURN_IF_ERROR(header.status());
  if (header->checksum == expected.header_checksum) return {};
  return Wrong(file, "has a header that is not the one that was saved");
}

}  // namespace zpp::internal
