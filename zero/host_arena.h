// Where optimizer states live: on the heap, or offloaded into memory of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/buffer.h"
#include "common/status.h"

namespace zpp {

enum class HostMemory : uint8_t {
  kHeap,       // as everything else
  kHugePages,  // a mapping of its own for which the kernel is asked for huge pages
  kPinned,     // such a mapping, locked: never swapped out, ready for DMA
};

struct HostMemoryUsage {
  size_t capacity_bytes = 0;
  size_t used_bytes = 0;    // handed out, padding included
  size_t huge_bytes = 0;    // of the mapping, in huge pages right now, as the kernel reports it
  size_t locked_bytes = 0;  // locked in memory
};

// A block of memory that is reserved once, handed out in pieces, and given back as a whole. Move
// only; not thread-safe. Pieces live as long as the arena (moving it leaves them where they are).
class HostArena {
 public:
  static constexpr size_t kAlignment_bytes = 64;

  HostArena() = default;  // capacity 0
  // All of it is touched here, so that a lack of memory shows now. kResourceExhausted when the
  // system has less available, or, for kPinned, when it cannot be locked (the message names the
  // limit). The capacity is rounded up to whole pieces, of a mapping to whole huge pages. Cost: a
  // page fault per page.
  static Result<HostArena> Create(HostMemory kind, size_t capacity_bytes);

  // At most what a piece takes of the capacity; summed, a capacity that is enough for several.
  static size_t PieceBytes(size_t bytes);
  static size_t PieceBytesOfFloats(int64_t elems);

  // Zeroed, 64-byte aligned. kResourceExhausted when the rest is too small. Large pieces start at
  // different offsets within 64 KiB: arrays that are walked side by side and lie a large power of
  // two apart get in each other's way in caches and memory banks, and cost up to 2.7 times as much.
  Result<std::span<std::byte>> Allocate(size_t bytes);
  Result<std::span<float>> AllocateFloats(int64_t elems);

  HostMemory kind() const { return kind_; }
  // Reads /proc/self/smaps for huge_bytes: not for inner loops.
  HostMemoryUsage Usage() const;

 private:
  HostMemory kind_ = HostMemory::kHeap;
  size_t PaddingBefore(size_t bytes) const;

  Buffer memory_;
  size_t used_bytes_ = 0;
  size_t large_pieces_ = 0;
};

}  // namespace zpp
