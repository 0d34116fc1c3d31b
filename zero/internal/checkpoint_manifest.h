// What manifest.json says.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/dtype.h"
#include "common/status.h"
#include "zero/checkpoint.h"

namespace zpp::internal {

inline constexpr int kCheckpointVersion = 1;
inline constexpr int64_t kChecksumChunkBytes = 1 << 20;
// 1 GiB: checksums of some 50 TB.
inline constexpr int64_t kMaxManifestBytes = int64_t{1} << 30;

struct ShardFile {
  std::string file;  // in the checkpoint's folder, no path
  int64_t file_bytes = 0;
  int64_t header_bytes = 0;  // of the safetensors header with its length
  uint64_t header_checksum = 0;
};

struct SavedPiece {
  int shard = 0;  // who wrote it: index into Manifest::shards
  int64_t first_elem = 0, elems = 0;
  int64_t offset_bytes = 0;              // in the shard's file
  std::vector<uint64_t> checksums = {};  // one per chunk, counted from the piece's first byte
};

struct SavedTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t elems = 0;
  bool partial = false;
  std::vector<SavedPiece> pieces;  // by first_elem; none of 0 elements
};

struct Manifest {
  std::string id;  // 16 hex digits, drawn per save: tells the files of two saves apart
  CheckpointMeta meta;
  int64_t chunk_bytes = kChecksumChunkBytes;
  std::vector<ShardFile> shards;
  std::map<std::string, SavedTensor> tensors;
};

// The file's text; its checksum is over the whole text with zeros in its own place.
// kInvalidArgument: names or state that are not UTF-8.
Result<std::string> ManifestText(const Manifest& manifest);

// kDataLoss for what is not such a text or contradicts itself: afterwards every piece lies inside
// its tensor and its shard, and the pieces cover what they must. kUnimplemented: a newer version.
Result<Manifest> ParseManifest(std::string_view text);

// From folder/manifest.json; messages name the file.
Result<Manifest> ReadManifest(const std::string& folder);

// The text with the right checksum in its place, as far as it has that place.
std::string Seal(std::string text);

// Elements of a shape; nothing when one is negative or their bytes overflow.
std::optional<int64_t> ElemsOf(const std::vector<int64_t>& shape, DType dtype);
// "(3, 4)".
std::string ShapeText(const std::vector<int64_t>& shape);

// Sorts the pieces. Each must lie inside the tensor, none overlap another, and all cover it unless
// it is partial: else one sentence with the elements and the ranks.
Status SortAndCheckPieces(const std::string& name, SavedTensor& tensor);

}  // namespace zpp::internal
