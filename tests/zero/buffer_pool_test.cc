// What a pool holds against what is in use, for equal and for unlike sizes.
#include "zero/internal/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace zpp::test {
namespace {

using internal::BufferPool;

Buffer Taken(BufferPool& pool, int64_t bytes) {
  auto buffer = pool.Take(bytes);
  EXPECT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->size(), static_cast<size_t>(bytes));
  return std::move(*buffer);
}

TEST(BufferPool, EqualSizesComeBack) {
  BufferPool pool;
  Buffer first = Taken(pool, 640);
  const std::byte* data = first.data();
  pool.Give(std::move(first));
  EXPECT_EQ(Taken(pool, 640).data(), data);
  EXPECT_EQ(pool.allocated_bytes(), 640);
}

TEST(BufferPool, NothingIsEmpty) {
  BufferPool pool;
  EXPECT_TRUE(Taken(pool, 0).empty());
  pool.Give(Buffer());
  EXPECT_EQ(pool.allocated_bytes(), 0);
}

// Units and buckets of unlike sizes, one at a time: never much more than the largest.
TEST(BufferPool, UnlikeSizesOneAtATimeHoldTheLargest) {
  BufferPool pool;
  for (int round = 0; round < 3; ++round) {
    for (int64_t bytes = 100; bytes <= 2000; bytes += 100) {
      pool.Give(Taken(pool, bytes));
      EXPECT_LE(pool.allocated_bytes(), 2000);
    }
    for (int64_t bytes = 2000; bytes >= 100; bytes -= 100) pool.Give(Taken(pool, bytes));
    EXPECT_LE(pool.allocated_bytes(), 2000);
  }
}

// Buckets that differ by one tile share blocks.
TEST(BufferPool, NearlyEqualSizesComeBack) {
  BufferPool pool;
  Buffer first = Taken(pool, 1024);
  const std::byte* data = first.data();
  pool.Give(std::move(first));
  Buffer second = Taken(pool, 960);
  EXPECT_EQ(second.data(), data);
  pool.Give(std::move(second));
  EXPECT_EQ(Taken(pool, 1024).data(), data);
  EXPECT_EQ(pool.allocated_bytes(), 1024);
}

TEST(BufferPool, ASmallRequestDoesNotTakeALargeBlock) {
  BufferPool pool;
  pool.Give(Taken(pool, 10'000));
  for (int round = 0; round < 4; ++round) {
    Buffer small = Taken(pool, 1000);
    Buffer large = Taken(pool, 10'000);
    pool.Give(std::move(small));
    pool.Give(std::move(large));
    EXPECT_EQ(pool.allocated_bytes(), 11'000);
  }
}

TEST(BufferPool, BuffersInUseNeverOverlapAndStaySmall) {
  BufferPool pool;
  std::mt19937 random(7);
  std::vector<std::pair<Buffer, uint8_t>> held;
  int64_t used = 0, peak = 0;
  for (int i = 0; i < 4000; ++i) {
    if (!held.empty() && (held.size() > 12 || random() % 2 == 0)) {
      std::swap(held[random() % held.size()], held.back());
      for (const std::byte b : held.back().first.span()) {
        ASSERT_EQ(std::to_integer<uint8_t>(b), held.back().second);
      }
      used -= static_cast<int64_t>(held.back().first.size());
      pool.Give(std::move(held.back().first));
      held.pop_back();
      continue;
    }
    Buffer buffer = Taken(pool, 1 + static_cast<int64_t>(random() % 5000));
    used += static_cast<int64_t>(buffer.size());
    peak = std::max(peak, used);
    ASSERT_LE(pool.allocated_bytes(), peak + peak / 8);
    std::memset(buffer.data(), i & 0xff, buffer.size());
    held.emplace_back(std::move(buffer), static_cast<uint8_t>(i & 0xff));
  }
}

// A collective may still write into what an error left behind.
TEST(BufferPool, WhatIsNotGivenBackStaysValid) {
  BufferPool pool;
  std::byte* data = Taken(pool, 512).data();
  pool.Give(Taken(pool, 512));
  EXPECT_NE(Taken(pool, 512).data(), data);
  std::memset(data, 1, 512);
}

}  // namespace
}  // namespace zpp::test
