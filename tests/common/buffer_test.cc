#include "common/buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>

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
