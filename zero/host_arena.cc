#include "zero/host_arena.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

namespace zpp {
namespace {

constexpr size_t kHugePage_bytes = size_t{2} << 20;
// Large pieces start at each of so many offsets, so far apart, in turn.
constexpr size_t kLarge_bytes = size_t{4} << 20;
constexpr size_t kOffsets = 16;
constexpr size_t kOffset_bytes = 4096;
constexpr size_t kLargest_bytes = std::numeric_limits<size_t>::max() / 2;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

Status NoMemory(size_t bytes, const std::string& why) {
  return {StatusCode::kResourceExhausted,
          "cannot get " + std::to_string(bytes) + " bytes for optimizer states: " + why};
}

std::string LockLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return std::to_string(limit.rlim_cur) + " bytes";
}

// A mapping that starts and ends on borders of huge pages. MAP_NORESERVE is not asked for: where
// the system accounts for memory, too much is refused here.
Result<Buffer> Map(size_t bytes) {
  const size_t mapped_bytes = bytes + kHugePage_bytes;
  void* mapping =
      mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return NoMemory(bytes, std::strerror(errno));
  const uintptr_t start = reinterpret_cast<uintptr_t>(mapping);
  const size_t ahead = RoundUp(start, kHugePage_bytes) - start;
  std::byte* data = static_cast<std::byte*>(mapping) + ahead;
  // Failure leaves small pages: slower, as usable, and visible in Usage().
  (void)madvise(data, bytes, MADV_HUGEPAGE);
  return Buffer(data, bytes, [=](std::byte*, size_t) { munmap(mapping, mapped_bytes); });
}

Status Lock(const Buffer& memory) {
  if (mlock(memory.data(), memory.size()) == 0) return {};
  const std::string why = std::strerror(errno);
  return NoMemory(memory.size(), "locking them failed (" + why + "); RLIMIT_MEMLOCK is " +
                                     LockLimit() + ". Raise it, or do without pin_memory");
}

Result<Buffer> Reserve(HostMemory kind, size_t bytes) {
  switch (kind) {
    case HostMemory::kHeap:
      return Buffer::Allocate(bytes);
    case HostMemory::kHugePages:
    case HostMemory::kPinned:
      return Map(RoundUp(bytes, kHugePage_bytes));
  }
  return Internal("no such kind of host memory");
}

// What the system says it can still give; all there could be where it does not say.
size_t AvailableBytes(bool with_swap) {
  std::ifstream meminfo("/proc/meminfo");
  size_t sum_bytes = 0;
  for (std::string line; std::getline(meminfo, line);) {
    unsigned long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %lu kB", &kib) == 1 ||
        (with_swap && std::sscanf(line.c_str(), "SwapFree: %lu kB", &kib) == 1)) {
      sum_bytes += size_t{kib} * 1024;
    }
  }
  return sum_bytes == 0 ? kLargest_bytes : sum_bytes;
}

// Systems that promise more than they have end the process that takes them at their word.
Status CheckAvailable(HostMemory kind, size_t bytes) {
  const size_t available_bytes = AvailableBytes(kind != HostMemory::kPinned);
  if (bytes <= available_bytes) return {};
  return NoMemory(bytes, "only " + std::to_string(available_bytes) + " are available");
}

// The sum of `field` over the mappings that lie in [begin, end), from /proc/self/smaps.
size_t SumOfSmaps(uintptr_t begin, uintptr_t end, const std::string& field) {
  std::ifstream smaps("/proc/self/smaps");
  size_t sum_bytes = 0;
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long first = 0, last = 0, kib = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2) {
      inside = first < end && last > begin;
    } else if (inside && line.compare(0, field.size(), field) == 0 &&
               std::sscanf(line.c_str() + field.size(), " %lu kB", &kib) == 1) {
      sum_bytes += size_t{kib} * 1024;
    }
  }
  return sum_bytes;
}

}  // namespace

Result<HostArena> HostArena::Create(HostMemory kind, size_t capacity_bytes) {
  HostArena arena;
  arena.kind_ = kind;
  if (capacity_bytes == 0) return arena;
  ZPP_RETURN_IF_ERROR(CheckAvailable(kind, capacity_bytes));
  ZPP_ASSIGN_OR_RETURN(arena.memory_, Reserve(kind, RoundUp(capacity_bytes, kAlignment_bytes)));
  if (kind == HostMemory::kPinned) {
    ZPP_RETURN_IF_ERROR(Lock(arena.memory_));  // touches every page; new pages are zero
  } else {
    std::memset(arena.memory_.data(), 0, arena.memory_.size());
  }
  return arena;
}

size_t HostArena::PieceBytes(size_t bytes) {
  return RoundUp(bytes, kAlignment_bytes) + (bytes < kLarge_bytes ? 0 : kOffsets * kOffset_bytes);
}

size_t HostArena::PieceBytesOfFloats(int64_t elems) {
  return PieceBytes(static_cast<size_t>(elems) * sizeof(float));
}

size_t HostArena::PaddingBefore(size_t bytes) const {
  if (bytes < kLarge_bytes) return 0;
  const size_t next = reinterpret_cast<uintptr_t>(memory_.data()) + used_bytes_;
  const size_t wanted = large_pieces_ % kOffsets * kOffset_bytes;
  return (wanted - next) % (kOffsets * kOffset_bytes);
}

Result<std::span<std::byte>> HostArena::Allocate(size_t bytes) {
  const size_t left_bytes = memory_.size() - used_bytes_;
  const size_t padding_bytes = PaddingBefore(bytes);
  if (bytes > left_bytes || padding_bytes + RoundUp(bytes, kAlignment_bytes) > left_bytes) {
    return NoMemory(bytes, "of " + std::to_string(memory_.size()) + " bytes reserved, " +
                               std::to_string(left_bytes) + " are left");
  }
  const std::span<std::byte> piece(memory_.data() + used_bytes_ + padding_bytes, bytes);
  used_bytes_ += padding_bytes + RoundUp(bytes, kAlignment_bytes);
  if (bytes >= kLarge_bytes) ++large_pieces_;
  return piece;
}

Result<std::span<float>> HostArena::AllocateFloats(int64_t elems) {
  const size_t count = static_cast<size_t>(elems);
  if (elems < 0 || count > kLargest_bytes / sizeof(float)) {
    return InvalidArgument("cannot allocate " + std::to_string(elems) + " floats");
  }
  ZPP_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, Allocate(count * sizeof(float)));
  return std::span<float>(reinterpret_cast<float*>(bytes.data()), count);
}

HostMemoryUsage HostArena::Usage() const {
  HostMemoryUsage usage{.capacity_bytes = memory_.size(), .used_bytes = used_bytes_};
  if (kind_ == HostMemory::kHeap || memory_.empty()) return usage;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory_.data());
  usage.huge_bytes = SumOfSmaps(begin, begin + memory_.size(), "AnonHugePages:");
  usage.locked_bytes = kind_ == HostMemory::kPinned ? memory_.size() : 0;
  return usage;
}

}  // namespace zpp
