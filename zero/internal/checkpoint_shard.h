// One rank's file of a checkpoint: a safetensors file whose tensors are pieces, "name[first:end]".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/file.h"
#include "common/safetensors.h"
#include "common/status.h"
#include "zero/checkpoint.h"
#include "zero/internal/checkpoint_manifest.h"

namespace zpp::internal {

std::string SafetensorsTypeOf(DType dtype);  // "F32", "F16", "BF16"; "U8" for bytes

// What ties a shard to its checkpoint, in the header's metadata.
struct ShardIdentity {
  std::string id;  // Manifest::id
  int64_t step = 0;
  int rank = 0, world = 1;
  bool operator==(const ShardIdentity&) const = default;
};
std::string ToString(const ShardIdentity& identity);  // "rank 1 of 4 at step 5"

struct WrittenShard {
  ShardFile file;
  std::vector<SavedPiece> pieces;  // as they were given; those of 0 elements have no checksums
};

// Writes folder/rank-NNNNN.safetensors, synced. One pass over the data. Errors as AsideFile's.
Result<WrittenShard> WriteShard(const std::string& folder, const ShardIdentity& identity,
                                std::span<const StatePiece> pieces);

struct ShardHeader {
  int64_t bytes = 0;  // with the length in front
  uint64_t checksum = 0;
  SafetensorsHeader fields;
};
Result<ShardHeader> ReadShardHeader(const InputFile& file);

// kDataLoss in one sentence: another size, another checkpoint's or another rank's, changed bytes.
Status CheckShard(const InputFile& file, const ShardFile& expected, const ShardIdentity& identity);

}  // namespace zpp::internal
