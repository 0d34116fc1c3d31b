// Parts, chunks, the order of events and the arena.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "collectives/plan/plan.h"
#include "quant/wire.h"

namespace zpp {
namespace {

using testing::ElementsAre;

std::vector<int64_t> SizesOf(const Partition& parts) {
  std::vector<int64_t> sizes;
  for (int64_t p = 0; p < parts.parts(); ++p) sizes.push_back(parts.Elems(static_cast<PartId>(p)));
  return sizes;
}

TEST(PartitionTest, EvenPartsEndOnTheGrid) {
  EXPECT_THAT(SizesOf(Partition::Even(1000, 3, 128)), ElementsAre(256, 384, 360));
  EXPECT_THAT(SizesOf(Partition::Even(10, 4, 1)), ElementsAre(2, 3, 2, 3));
  EXPECT_THAT(SizesOf(Partition::Even(0, 2, 128)), ElementsAre(0, 0));
  EXPECT_THAT(SizesOf(Partition::Even(1, 3, 128)), ElementsAre(0, 0, 1));
}

TEST(PartitionTest, SizedPartsLieOneAfterAnother) {
  const int64_t sizes[] = {5, 0, 7};
  const Partition parts = Partition::Sized(sizes, 32);
  EXPECT_EQ(parts.TotalElems(), 12);
  EXPECT_EQ(parts.Offset(1), 5);
  EXPECT_EQ(parts.Offset(2), 5);
  EXPECT_EQ(parts.MaxPartElems(), 7);
}

TEST(PartitionTest, PairwisePartsLieByReceiverAndBySender) {
  const Partition parts = Partition::Pairwise(10, 3, 1);
  EXPECT_EQ(parts.parts(), 9);
  EXPECT_EQ(parts.TotalElems(), 30);
  const PartId from_2_to_1 = 2 * 3 + 1;
  EXPECT_EQ(parts.Offset(from_2_to_1), 10);
  EXPECT_EQ(parts.Offset(from_2_to_1, true), 20);
}

TEST(PartitionTest, ChunksTileThePartOnTheGrid) {
  for (int64_t elems : {0, 1, 127, 128, 129, 4097, 1'000'003}) {
    const Partition parts = Partition::Sized(std::span(&elems, 1), 128);
    for (int chunks : {1, 2, 3, 7, 64}) {
      int64_t at = 0;
      for (int c = 0; c < chunks; ++c) {
        const Slice slice = parts.ChunkOf(0, c, chunks);
        ASSERT_EQ(slice.begin, at);
        ASSERT_TRUE(slice.end == elems || slice.end % 128 == 0);
        at = slice.end;
      }
      ASSERT_EQ(at, elems);
    }
  }
}

TEST(PartitionTest, ProportionalChunksOfLargestVectorsDoNotOverflow) {
  const int64_t elems = std::numeric_limits<int64_t>::max() / 4;
  const Partition parts = Partition::Even(elems, 16'384, 256);
  int64_t total = 0;
  for (int64_t size : SizesOf(parts)) {
    ASSERT_GT(size, 0);
    total += size;
  }
  EXPECT_EQ(total, elems);
  const Partition whole = Partition::Even(elems, 1, 1);
  EXPECT_EQ(whole.ChunkOf(0, 999'999, 1'000'000).end, elems);
  EXPECT_NEAR(static_cast<double>(whole.ChunkOf(0, 0, 1'000'000).end),
              static_cast<double>(elems) / 1e6, 1.0);
}

struct Ends {
  size_t started = 0, waited = 0;
};

TEST(EventsTest, EveryStageOfEveryChunkOnceAndInOrder) {
  for (int stages : {1, 2, 5}) {
    for (const Pipeline& pipeline :
         {Pipeline{1, 1, 1}, Pipeline{4, 2, 3}, Pipeline{9, 3, 2}, Pipeline{5, 2, 99}}) {
      const std::vector<Event> events = Events(stages, pipeline);
      ASSERT_EQ(events.size(), static_cast<size_t>(stages * pipeline.chunks * 4));
      std::vector<int> step(static_cast<size_t>(pipeline.chunks), 0);
      std::set<int> alive;
      for (const Event& event : events) {
        // Before, Start and During of a stage, then the Wait for it.
        int& at = step[static_cast<size_t>(event.chunk)];
        ASSERT_EQ(at++, event.stage * 4 + static_cast<int>(event.kind));
        alive.insert(event.chunk);
        ASSERT_LE(static_cast<int>(alive.size()), pipeline.lanes);
        if (event.kind == Event::kWait && event.stage == stages - 1) alive.erase(event.chunk);
      }
    }
  }
}

TEST(EventsTest, DepthTwoStartsTheNextChunkBeforeTheWait) {
  const std::vector<Event> events = Events(2, {.chunks = 2, .depth = 2, .lanes = 2});
  std::string text;
  for (const Event& e : events) {
    text += "BSDW"[e.kind] + std::to_string(e.chunk) + std::to_string(e.stage) + " ";
  }
  EXPECT_EQ(text, "B00 S00 D00 B10 S10 D10 W00 B01 S01 D01 W01 W10 B11 S11 D11 W11 ");
}

TEST(EventsTest, NothingToDo) {
  EXPECT_TRUE(Events(0, {.chunks = 3}).empty());
  EXPECT_TRUE(Events(3, {.chunks = 0}).empty());
}

TEST(ArenaTest, ReceivesOfAHopMakeRoomForLaterOnes) {
  const int fanout[] = {4, 4};
  const Topology topology = std::move(Topology::Regular(fanout)).value();
  PlanRequest q;
  q.topology = &topology;
  q.kind = CollectiveKind::kReduceScatter;
  q.hop = {QuantSpec::Int8(), QuantSpec::Int4(Code::kSqrt)};
  const Plan plan = std::move(MakePlan(q, 5)).value();
  const Partition parts = Partition::Even(1 << 20, 16, 256);
  const Arena arena = AssignArena(plan, parts, 0, 1);
  int64_t sum = 0;
  for (uint32_t s = 0; s < plan.slots.size(); ++s) {
    if (plan.slots[s].place != Place::kStage) {
      EXPECT_EQ(arena.offset_bytes[s], -1);
      continue;
    }
    EXPECT_EQ(arena.offset_bytes[s] % 64, 0);
    sum += SpanBytes(plan, parts, {s, 0, plan.slots[s].parts.count}, 0, 1);
  }
  EXPECT_GT(arena.bytes, 0);
  EXPECT_LT(arena.bytes, sum);
  EXPECT_LT(AssignArena(plan, parts, 0, 8).bytes, arena.bytes / 7);
}

}  // namespace
}  // namespace zpp
