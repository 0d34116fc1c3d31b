#include <algorithm>
#include <cstring>

#include "common/buffer.h"
#include "zero/internal/checkpoint_checksum.h"
#include "zero/internal/checkpoint_shard_reader.h"

namespace zpp::internal {
namespace {

constexpr size_t kOpenFiles = 16;

}  // namespace

Result<ShardReader::File> ShardReader::OpenShard(int shard) {
  const std::lock_guard lock(mutex_);
  auto it = std::find_if(open_.begin(), open_.end(),
                         [shard](const auto& entry) { return entry.first == shard; });
  if (it == open_.end()) {
    const std::string& name = manifest_.shards[static_cast<size_t>(shard)].file;
    ZPP_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(folder_ + "/" + name));
    if (open_.size() == kOpenFiles) open_.pop_back();
    open_.emplace_back(shard, std::make_shared<const InputFile>(std::move(file)));
    it = open_.end() - 1;
  }
  std::rotate(open_.begin(), it, it + 1);
  return open_.front().second;
}

Status ShardReader::Read(const SavedPiece& piece, int64_t piece_bytes, int64_t first_byte,
                         std::span<std::byte> out) {
  ZPP_ASSIGN_OR_RETURN(const File file, OpenShard(piece.shard));
  const int64_t end = first_byte + static_cast<int64_t>(out.size());
  const int64_t chunk_bytes = manifest_.chunk_bytes;
  Buffer scratch;
  for (int64_t chunk = first_byte / chunk_bytes; chunk * chunk_bytes < end; ++chunk) {
    const int64_t chunk_first = chunk * chunk_bytes;
    const int64_t chunk_end = std::min(chunk_first + chunk_bytes, piece_bytes);
    const int64_t from = std::max(chunk_first, first_byte), to = std::min(chunk_end, end);
    const auto wanted =
        out.subspan(static_cast<size_t>(from - first_byte), static_cast<size_t>(to - from));
    auto bytes = wanted;
    if (to - from <
        chunk_end - chunk_first) {  // an edge: its checksum needs bytes nobody asked for
      if (scratch.empty()) {
        ZPP_ASSIGN_OR_RETURN(scratch, Buffer::Allocate(static_cast<size_t>(chunk_bytes)));
      }
      bytes = scratch.span().first(static_cast<size_t>(chunk_end - chunk_first));
    }
    ZPP_RETURN_IF_ERROR(file->ReadAt(piece.offset_bytes + chunk_first, bytes));
    if (Checksum(bytes) != piece.checksums[static_cast<size_t>(chunk)]) {
      return DataLoss("'" + file->path() + "' has changed since it was saved, in bytes " +
                      std::to_string(piece.offset_bytes + chunk_first) + " to " +
                      std::to_string(piece.offset_bytes + chunk_end - 1));
    }
    if (bytes.data() != wanted.data()) {
      std::memcpy(wanted.data(), bytes.data() + (from - chunk_first), wanted.size());
    }
  }
  return {};
}

}  // namespace zpp::internal
