#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/harness/rank_processes.h"
#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

TEST(Ranks, ThreadsHandBackValuesAndErrors) {
  const auto outcomes = RunThreads(3, [](int rank) -> Result<std::string> {
    if (rank == 1) return Status::PeerLost(7, "gone");
    return std::to_string(rank * 10);
  });
  EXPECT_EQ(outcomes[2].value, "20");
  EXPECT_EQ(outcomes[1].status.lost_rank(), 7);
  const testing::AssertionResult all = AllOk(outcomes);
  EXPECT_FALSE(all);
  EXPECT_STREQ(all.message(), "rank 1: PEER_LOST: gone\n");
}

TEST(Ranks, ProcessesTellHowEachEnded) {
  const std::string long_value(1 << 20, 'x');
  const auto outcomes = RunProcesses(5, 3, [&](int rank) -> Result<std::string> {
    if (rank == 0) return long_value;
    if (rank == 1) return Status::PeerLost(3, "gone \xff");
    if (rank == 2) _exit(5);
    if (rank == 3) raise(SIGKILL);
    for (;;) pause();
  });
  EXPECT_TRUE(outcomes[0].ok());
  EXPECT_EQ(outcomes[0].value, long_value);
  EXPECT_EQ(outcomes[1].status.code(), StatusCode::kPeerLost);
  EXPECT_EQ(outcomes[1].status.lost_rank(), 3);
  EXPECT_EQ(outcomes[2].kind, RankOutcome::kExited);
  EXPECT_EQ(outcomes[2].detail, 5);
  EXPECT_EQ(outcomes[3].kind, RankOutcome::kSignalled);
  EXPECT_EQ(outcomes[3].detail, SIGKILL);
  EXPECT_EQ(outcomes[4].kind, RankOutcome::kTimedOut);
}

TEST(Ranks, AStoppedProcessIsKilledInTheEnd) {
  pid_t pid = -1;
  {
    RankProcesses ranks(1, [](int) -> Result<std::string> {
      for (;;) pause();
    });
    pid = ranks.pid(0);
    ranks.Signal(0, SIGSTOP);
    EXPECT_FALSE(ranks.Hear({0}, Deadline::In(0.05)));
  }
  EXPECT_EQ(kill(pid, 0), -1) << "still there";
}

}  // namespace
}  // namespace zpp::test
