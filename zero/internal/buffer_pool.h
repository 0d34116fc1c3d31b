// Buffers that are used again and again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/buffer.h"
#include "common/status.h"

namespace zpp::internal {

// Holds at most an eighth more than what was in use at the same time, whatever the sizes: a block
// serves requests of its size and of a little less, as buckets that were cut evenly are, and beyond
// the peak free blocks make room for others. Equal sizes allocate nothing after their peak.
//
// The blocks are the pool's own. What was taken and is never given back, because of an error,
// stays valid until the pool goes: a collective may still be writing into it.
class BufferPool {
 public:
  // Of exactly this size, contents unspecified. 0 bytes give an empty buffer.
  Result<Buffer> Take(int64_t bytes) {
    if (bytes == 0) return Buffer();
    peak_bytes_ = std::max(peak_bytes_, used_bytes_ + bytes);
    Block* block = BestFit(bytes);
    if (block == nullptr) {
      ZPP_ASSIGN_OR_RETURN(block, Make(bytes));
    }
    block->free = false;
    used_bytes_ += bytes;
    return Buffer(block->memory.data(), static_cast<size_t>(bytes), nullptr);
  }
  // `buffer` came from Take(), or is empty.
  void Give(Buffer buffer) {
    if (buffer.empty()) return;
    for (Block& block : blocks_) {
      if (block.memory.data() == buffer.data()) block.free = true;
    }
    used_bytes_ -= static_cast<int64_t>(buffer.size());
  }
  // What it holds now, in use or not.
  int64_t allocated_bytes() const { return allocated_bytes_; }

 private:
  struct Block {
    Buffer memory;
    bool free = true;
    int64_t bytes() const { return static_cast<int64_t>(memory.size()); }
  };

  // The smallest free one that is large enough, and not much larger; null when none is.
  Block* BestFit(int64_t bytes) {
    Block* best = nullptr;
    for (Block& block : blocks_) {
      if (!block.free || block.bytes() < bytes || block.bytes() > bytes + bytes / 8) continue;
      if (best == nullptr || block.bytes() < best->bytes()) best = &block;
    }
    return best;
  }

  // Frees blocks, largest first, until `bytes` more fit under the peak.
  void DropFree(int64_t bytes) {
    while (allocated_bytes_ + bytes > peak_bytes_) {
      auto largest = blocks_.end();
      for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
        if (!block->free) continue;
        if (largest == blocks_.end() || block->bytes() > largest->bytes()) largest = block;
      }
      if (largest == blocks_.end()) return;
      allocated_bytes_ -= largest->bytes();
      blocks_.erase(largest);
    }
  }

  Result<Block*> Make(int64_t bytes) {
    DropFree(bytes);
    ZPP_ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(static_cast<size_t>(bytes)));
    allocated_bytes_ += bytes;
    blocks_.push_back({.memory = std::move(memory)});
    return &blocks_.back();
  }

  std::vector<Block> blocks_;
  int64_t used_bytes_ = 0, peak_bytes_ = 0, allocated_bytes_ = 0;
};

}  // namespace zpp::internal
