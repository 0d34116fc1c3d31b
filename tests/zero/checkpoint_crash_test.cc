// kill -9 at random moments of a save: there is always a whole checkpoint, with the right bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/collectives/process_world.h"
#include "tests/harness/rank_processes.h"
#include "tests/harness/ranks.h"
#include "tests/zero/checkpoint_cases.h"

namespace zpp::test {
namespace {

constexpr int kWorld = 2;
constexpr int kKills = 60;

// What rank 0 tells the test, through memory that it shares with its ranks.
struct Progress {
  std::atomic<int64_t> begun;  // the step that is being saved
  std::atomic<int64_t> saved;  // the last one that SaveCheckpoint() returned ok for
};

class SharedProgress {
 public:
  SharedProgress() {
    void* memory = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    progress_ = new (memory) Progress{};
  }
  ~SharedProgress() { ::munmap(progress_, sizeof(Progress)); }
  Progress* operator->() const { return progress_; }

 private:
  Progress* progress_;
};

std::vector<TensorCase> Tensors() {
  return {{"w", {300, 1000}, DType::kF32}, {"b", {999}, DType::kBF16}};
}

Result<std::unique_ptr<Communicator>> Connect(int rank, int world) {
  const Topology topology = Topology::Flat(world);
  ZPP_ASSIGN_OR_RETURN(UcxRank made, MakeUcxRank(rank, topology, 20));
  return Communicator::Create(std::move(made.transport), std::move(made.control), topology, {});
}

// Step after step, from the one after the last that is there, until it is killed.
Result<std::string> SaveForEver(int rank, const std::string& dir, const SharedProgress& progress) {
  ZPP_ASSIGN_OR_RETURN(auto comm, Connect(rank, kWorld));
  int64_t step = 1;
  if (const auto reader = CheckpointReader::Open(dir); reader.ok()) step = reader->meta().step + 1;
  // All have looked before the first one writes.
  ZPP_RETURN_IF_ERROR(comm->Barrier());
  for (;; ++step) {
    const OwnedPieces owned = DealPieces(Tensors(), rank, kWorld, step);
    if (rank == 0) progress->begun = step;
    ZPP_RETURN_IF_ERROR(
        SaveCheckpoint(*comm, dir, MetaOf(Tensors(), step), owned.pieces, {.keep_last = 2}));
    if (rank == 0) progress->saved = step;
  }
}

// Every step that has a folder is whole, and the one that Open() takes is not older than the last
// one that is known to be saved.
void ExpectWhole(const std::string& dir, int64_t saved, int64_t begun) {
  const auto reader = CheckpointReader::Open(dir);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  const int64_t step = reader->meta().step;
  EXPECT_GE(step, saved);
  EXPECT_LE(step, begun);
  EXPECT_EQ("OK", CheckCheckpoint(dir, Tensors(), step).ToString());
  for (const std::string& name : NamesIn(dir)) {
    if (!name.starts_with("step-")) continue;
    const int64_t kept = std::stoll(name.substr(5));
    EXPECT_EQ("OK", CheckCheckpoint(dir + "/" + name, Tensors(), kept).ToString());
  }
}

TEST(CheckpointCrash, AWholeJobKilledAtAnyMoment) {
  const TempFolder dir;
  const SharedProgress progress;
  std::mt19937_64 random(3);
  int in_mid_save = 0, left_over = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    SCOPED_TRACE("kill " + std::to_string(kill));
    const int64_t start = progress->saved;
    {
      RankProcesses ranks(kWorld,
                          [&](int rank) { return SaveForEver(rank, dir.path(), progress); });
      const Deadline patience = Deadline::In(40);
      while (progress->saved == start && !patience.expired()) ::usleep(200);
      ASSERT_GT(progress->saved, start) << "no save in 40 s";
      ::usleep(std::uniform_int_distribution<useconds_t>(0, 12000)(random));
      const int first = std::uniform_int_distribution<int>(0, kWorld - 1)(random);
      ranks.Signal(first, SIGKILL);
      ranks.Signal(1 - first, SIGKILL);
      for (int rank = 0; rank < kWorld; ++rank) ranks.Reap(rank);
    }
    in_mid_save += progress->begun > progress->saved ? 1 : 0;
    for (const std::string& name : NamesIn(dir.path())) left_over += name.front() == '.' ? 1 : 0;
    ExpectWhole(dir.path(), progress->saved, progress->begun);
    if (HasFatalFailure()) return;
    // The next job starts after what is there, which may be more than was acknowledged.
    progress->saved = CheckpointReader::Open(dir.path())->meta().step;
  }
  // The kills did what they are for.
  EXPECT_GT(in_mid_save, kKills / 4);
  EXPECT_GT(left_over, 0);
  RecordProperty("in_mid_save", in_mid_save);
  RecordProperty("left_over", left_over);
}

// One rank dies in the middle of a save: the other one names it, and what was there stays.
TEST(CheckpointCrash, OneRankKilled) {
  for (const int victim : {0, 1}) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    const TempFolder dir;
    const SharedProgress progress;
    RankProcesses ranks(kWorld, [&](int rank) { return SaveForEver(rank, dir.path(), progress); });
    const Deadline patience = Deadline::In(40);
    while (progress->saved < 3 && !patience.expired()) ::usleep(200);
    ASSERT_GE(progress->saved, 3) << "no saves in 40 s";
    ranks.Signal(victim, SIGKILL);
    ASSERT_TRUE(ranks.Hear({1 - victim}, Deadline::In(40)));
    const auto outcomes = ranks.Collect(Deadline::In(0));
    const RankOutcome& survivor = outcomes[static_cast<size_t>(1 - victim)];
    EXPECT_EQ(StatusCode::kPeerLost, survivor.status.code()) << survivor.ToString();
    EXPECT_EQ(victim, survivor.status.lost_rank());
    ExpectWhole(dir.path(), progress->saved, progress->begun);
    if (victim == 0) continue;
    for (const std::string& name : NamesIn(dir.path())) {
      EXPECT_NE('.', name.front()) << "rank 0 lives, and left " << name;
    }
  }
}

}  // namespace
}  // namespace zpp::test
