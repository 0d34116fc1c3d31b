#include "common/buffer.h"

#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

namespace zpp {
namespace {

TEST(Buffer, IsAlignedAndWritable) {
  for (size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{4097}}) {
    Result<Buffer> buffer = Buffer::Allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % Buffer::kAlignment_bytes, 0u);
    EXPECT_EQ(buffer->size(), bytes);
    std::memset(buffer->data(), 0xa5, bytes);
    EXPECT_EQ(buffer->span().back(), std::byte{0xa5});
  }
}

TEST(Buffer, LargeOnesAreWritableToTheLastByteAndFreed) {
  constexpr size_t kLarge = Buffer::kLarge_bytes;
  for (size_t bytes : {kLarge - 1, kLarge, kLarge + 1, 3 * kLarge + 12345}) {
    for (int again = 0; again < 2; ++again) {
      Result<Buffer> buffer = Buffer::Allocate(bytes);
      ASSERT_TRUE(buffer.ok());
      std::memset(buffer->data(), 0xa5, bytes);
      EXPECT_EQ(buffer->span().back(), std::byte{0xa5});
    }
  }
}

// Whether the kernel was asked for large pages where `data` lies.
bool AsksForLargePages(const void* data) {
  std::ifstream maps("/proc/self/smaps");
  const auto at = reinterpret_cast<uintptr_t>(data);
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      here = begin <= at && at < end;
    }
    if (here && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

TEST(Buffer, LargeOnesAskForLargePages) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) {
    GTEST_SKIP() << "probe: a kernel without transparent huge pages";
  }
  const Result<Buffer> large = Buffer::Allocate(Buffer::kLarge_bytes);
  ASSERT_TRUE(large.ok());
  EXPECT_TRUE(AsksForLargePages(large->data()));
}

TEST(Buffer, ZeroBytesIsEmpty) {
  const Result<Buffer> buffer = Buffer::Allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_TRUE(buffer->empty());
}

TEST(Buffer, TooMuchIsAStatus) {
  EXPECT_EQ(Buffer::Allocate(std::numeric_limits<size_t>::max()).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(Buffer, DeleterRunsOnceWhereverTheBufferMoved) {
  int deleted = 0;
  std::byte memory[8];
  {
    Buffer a(memory, sizeof memory, [&](std::byte* data, size_t bytes) {
      EXPECT_EQ(data, memory);
      EXPECT_EQ(bytes, sizeof memory);
      ++deleted;
    });
    Buffer b(std::move(a));
    Buffer c;
    c = std::move(b);
    EXPECT_EQ(c.size(), sizeof memory);
    Buffer& same = c;
    c = std::move(same);  // a self-move keeps it
    EXPECT_EQ(deleted, 0);
  }
  EXPECT_EQ(deleted, 1);
}

}  // namespace
}  // namespace zpp
