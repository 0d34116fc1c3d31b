// The bytes of pieces, with their checksums compared.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/file.h"
#include "common/status.h"
#include "zero/internal/checkpoint_manifest.h"

namespace zpp::internal {

// Thread-safe. Keeps the last few files open.
class ShardReader {
 public:
  // `manifest` is borrowed.
  ShardReader(std::string folder, const Manifest& manifest)
      : folder_(std::move(folder)), manifest_(manifest) {}

  // Bytes of the piece from its byte `first_byte` on, all its own. kDataLoss names the file.
  Status Read(const SavedPiece& piece, int64_t piece_bytes, int64_t first_byte,
              std::span<std::byte> out);

 private:
  using File = std::shared_ptr<const InputFile>;
  Result<File> OpenShard(int shard);

  std::string folder_;
  const Manifest& manifest_;
  std::mutex mutex_;
  std::vector<std::pair<int, File>> open_;  // the last used first
};

}  // namespace zpp::internal
