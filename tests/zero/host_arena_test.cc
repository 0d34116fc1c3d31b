// Pieces are zeroed, aligned, apart from each other and of the promised size; what the kernel
// grants is reported; what cannot be had is one clear sentence.
#include "zero/host_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace zpp {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;
constexpr HostMemory kKinds[] = {HostMemory::kHeap, HostMemory::kHugePages};

HostArena Make(HostMemory kind, size_t bytes) {
  Result<HostArena> arena = HostArena::Create(kind, bytes);
  EXPECT_TRUE(arena.ok()) << arena.status().ToString();
  return arena.ok() ? std::move(arena).value() : HostArena();
}

TEST(HostArena, PiecesAreZeroedAlignedAndApart) {
  const std::vector<size_t> sizes = {1, 63, 64, 65, 0, 1000, 5 * kMiB, 7, 4 * kMiB, 9 * kMiB + 3};
  size_t capacity = 0;
  for (size_t bytes : sizes) capacity += HostArena::PieceBytes(bytes);
  for (HostMemory kind : kKinds) {
    HostArena arena = Make(kind, capacity);
    std::vector<std::span<std::byte>> pieces;
    for (size_t bytes : sizes) {
      Result<std::span<std::byte>> piece = arena.Allocate(bytes);
      ASSERT_TRUE(piece.ok()) << piece.status().ToString();
      EXPECT_EQ(piece->size(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(piece->data()) % HostArena::kAlignment_bytes, 0u);
      EXPECT_TRUE(
          std::all_of(piece->begin(), piece->end(), [](std::byte b) { return b == std::byte{0}; }));
      std::memset(piece->data(), static_cast<int>(pieces.size() + 1), bytes);
      pieces.push_back(*piece);
    }
    // Each still holds its own number.
    for (size_t i = 0; i < pieces.size(); ++i) {
      const std::byte own = static_cast<std::byte>(i + 1);
      EXPECT_TRUE(
          std::all_of(pieces[i].begin(), pieces[i].end(), [&](std::byte b) { return b == own; }))
          << "piece " << i;
    }
    const HostMemoryUsage usage = arena.Usage();
    EXPECT_GE(usage.capacity_bytes, capacity);
    EXPECT_LE(usage.used_bytes, capacity);
    EXPECT_EQ(usage.locked_bytes, 0u);
  }
}

// Arrays of a power of two, one behind the other, would all start at the same offset.
TEST(HostArena, LargePiecesStartAtDifferentOffsets) {
  for (HostMemory kind : kKinds) {
    HostArena arena = Make(kind, 5 * HostArena::PieceBytes(4 * kMiB));
    std::set<uintptr_t> offsets;
    for (int i = 0; i < 5; ++i) {
      Result<std::span<std::byte>> piece = arena.Allocate(4 * kMiB);
      ASSERT_TRUE(piece.ok()) << piece.status().ToString();
      offsets.insert(reinterpret_cast<uintptr_t>(piece->data()) % (64 << 10) / 4096);
    }
    EXPECT_EQ(offsets.size(), 5u);
  }
}

TEST(HostArena, MovingLeavesThePiecesWhereTheyAre) {
  for (HostMemory kind : kKinds) {
    HostArena arena = Make(kind, 2 * HostArena::PieceBytesOfFloats(1000));
    const std::span<float> first = *arena.AllocateFloats(1000);
    std::fill(first.begin(), first.end(), 3.0f);
    HostArena other = std::move(arena);
    const std::span<float> second = *other.AllocateFloats(1000);
    EXPECT_EQ(std::count(first.begin(), first.end(), 3.0f), 1000);
    EXPECT_EQ(std::count(second.begin(), second.end(), 0.0f), 1000);
    EXPECT_EQ(other.kind(), kind);
  }
}

TEST(HostArena, MoreThanIsLeftIsRefused) {
  for (HostMemory kind : kKinds) {
    HostArena arena = Make(kind, 2 * kMiB);
    ASSERT_TRUE(arena.Allocate(kMiB).ok());
    const Status status = arena.Allocate(kMiB + 1).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr("1048576 are left"));
    EXPECT_FALSE(arena.Allocate(std::numeric_limits<size_t>::max()).ok());
    EXPECT_FALSE(arena.AllocateFloats(-1).ok());
    EXPECT_FALSE(arena.AllocateFloats(std::numeric_limits<int64_t>::max()).ok());
    EXPECT_TRUE(arena.Allocate(kMiB).ok()) << "a refused piece must take nothing";
    EXPECT_FALSE(arena.Allocate(1).ok());
  }
}

TEST(HostArena, NothingNeedsNoMemory) {
  for (HostMemory kind : kKinds) {
    HostArena arena = Make(kind, 0);
    EXPECT_TRUE(arena.Allocate(0).ok());
    EXPECT_FALSE(arena.Allocate(1).ok());
    EXPECT_EQ(arena.Usage().capacity_bytes, 0u);
  }
  EXPECT_FALSE(HostArena().AllocateFloats(1).ok());
}

TEST(HostArena, MoreThanTheMachineHasIsRefused) {
  for (HostMemory kind : {HostMemory::kHeap, HostMemory::kHugePages, HostMemory::kPinned}) {
    for (size_t bytes : {size_t{1} << 50, std::numeric_limits<size_t>::max()}) {
      const Status status = HostArena::Create(kind, bytes).status();
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
      EXPECT_THAT(status.message(), HasSubstr(std::to_string(bytes) + " bytes"));
    }
  }
}

bool KernelHasHugePages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  return std::getline(file, line) && line.find("[never]") == std::string::npos;
}

TEST(HostArena, HugePagesAreReportedAsTheKernelGrantsThem) {
  if (!KernelHasHugePages()) GTEST_SKIP() << "probe: the kernel has no transparent huge pages";
  const HostArena arena = Make(HostMemory::kHugePages, 16 * kMiB);
  const HostMemoryUsage usage = arena.Usage();
  EXPECT_EQ(usage.capacity_bytes, 16 * kMiB);
  EXPECT_LE(usage.huge_bytes, 16 * kMiB);
  EXPECT_EQ(usage.huge_bytes % (2 * kMiB), 0u);
  EXPECT_EQ(Make(HostMemory::kHeap, 16 * kMiB).Usage().huge_bytes, 0u);
}

size_t LockedKib() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmLck:", 0) == 0) return std::stoul(line.substr(6));
  }
  return 0;
}

// Sanitizers turn mlock into nothing; some users may not lock that much.
bool CanLock(size_t bytes) {
  const size_t before = LockedKib();
  std::vector<std::byte> memory(bytes);
  if (mlock(memory.data(), bytes) != 0) return false;
  const bool locked = LockedKib() > before;
  munlock(memory.data(), bytes);
  return locked;
}

TEST(HostArena, PinnedMemoryIsLockedAndUnlocked) {
  if (!CanLock(4 * kMiB)) GTEST_SKIP() << "probe: this process cannot lock 4 MiB of memory";
  const size_t before = LockedKib();
  {
    HostArena arena = Make(HostMemory::kPinned, 4 * kMiB);
    EXPECT_EQ(arena.Usage().locked_bytes, 4 * kMiB);
    EXPECT_EQ(LockedKib() - before, 4 * kMiB / 1024);
    const std::span<float> floats = *arena.AllocateFloats(100000);
    EXPECT_EQ(std::count(floats.begin(), floats.end(), 0.0f), 100000);
  }
  EXPECT_EQ(LockedKib(), before);
}

// In a process of its own that may lock nothing: 0 when the refusal is as it should be.
int TryToPinWithoutTheRight() {
  const rlimit none = {0, 0};
  constexpr uid_t kNobody = 65534;
  if (setrlimit(RLIMIT_MEMLOCK, &none) != 0) return 1;
  if (geteuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) return 2;
  const Status status = HostArena::Create(HostMemory::kPinned, 4 * kMiB).status();
  if (status.code() != StatusCode::kResourceExhausted) return 3;
  return status.message().find("RLIMIT_MEMLOCK is 0 bytes") == std::string::npos ? 4 : 0;
}

TEST(HostArena, PinningWithoutTheRightNamesTheLimit) {
  if (!CanLock(4096)) GTEST_SKIP() << "probe: this process cannot lock memory";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(TryToPinWithoutTheRight());
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  ASSERT_TRUE(WIFEXITED(state));
  EXPECT_EQ(WEXITSTATUS(state), 0);
}

}  // namespace
}  // namespace zpp
