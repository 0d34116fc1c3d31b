// Ranks that never come, die, stop or lie, as the control plane sees them.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <csignal>
#include <cstring>
#include <random>
#include <vector>

#include "collectives/bootstrap/handshake.h"
#include "collectives/bootstrap/internal/socket.h"
#include "tests/collectives/process_world.h"
#include "tests/harness/rank_processes.h"
#include "tests/harness/ranks.h"
#include "tests/harness/ready_count.h"

namespace zpp::test {
namespace {

using std::chrono::duration;
using testing::HasSubstr;

double SecondsOf(Deadline::Clock::duration time) { return duration<double>(time).count(); }

TEST(Rendezvous, WhoNeverCameIsNamedOnEveryRankThatDid) {
  const auto outcomes = RunProcesses(4, 30, [](int rank) -> Result<std::string> {
    if (rank == 2) return std::string("elsewhere");
    const auto start = Deadline::Clock::now();
    const Status status = JoinControlPlane(TestRendezvous(rank, 4), {}, Deadline::In(1)).status();
    ZPP_REQUIRE(SecondsOf(Deadline::Clock::now() - start) < 2.5);
    return status;
  });
  for (const int rank : {0, 1, 3}) {
    const Status& status = outcomes[static_cast<size_t>(rank)].status;
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("rank 2 never came"));
  }
}

TEST(Rendezvous, RankZeroThatNeverCameIsNamed) {
  const auto outcomes = RunProcesses(2, 30, [](int rank) -> Result<std::string> {
    if (rank == 0) return std::string("elsewhere");
    return JoinControlPlane(TestRendezvous(rank, 2), {}, Deadline::In(0.7)).status();
  });
  EXPECT_EQ(outcomes[1].status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(outcomes[1].status.message(), HasSubstr("rank 0 never came"));
}

TEST(Rendezvous, RankZeroMayBeLate) {
  const auto outcomes = RunProcesses(3, 30, [](int rank) -> Result<std::string> {
    if (rank == 0) ::usleep(700000);
    ZPP_ASSIGN_OR_RETURN(auto plane, JoinTestPlane(rank, 3));
    ZPP_ASSIGN_OR_RETURN(auto all, plane->AllGather(std::to_string(rank), Deadline::In(10)));
    ZPP_REQUIRE(all == std::vector<std::string>({"0", "1", "2"}));
    plane->Leave();
    return std::string();
  });
  EXPECT_TRUE(AllOk(outcomes));
}

// The seat of a rank that died before all had come goes to its successor.
TEST(Rendezvous, ARankThatComesAgainReplacesItsOlderSelf) {
  const auto outcomes = RunProcesses(4, 30, [](int which) -> Result<std::string> {
    const int rank = which == 3 ? 1 : which;  // two processes for rank 1; rank 2 comes last
    if (which == 3) ::usleep(300000);
    if (which == 2) ::usleep(800000);
    ZPP_ASSIGN_OR_RETURN(auto plane, JoinTestPlane(rank, 3));
    ZPP_ASSIGN_OR_RETURN(auto all, plane->AllGather(std::to_string(which), Deadline::In(10)));
    plane->Leave();
    return all[1];
  });
  EXPECT_EQ(outcomes[1].status.code(), StatusCode::kMismatch);
  EXPECT_THAT(outcomes[1].status.message(), HasSubstr("another process came as rank 1"));
  for (const int which : {0, 2, 3}) {
    const RankOutcome& outcome = outcomes[static_cast<size_t>(which)];
    ASSERT_TRUE(outcome.ok()) << outcome.ToString();
    EXPECT_EQ(outcome.value, "3");
  }
}

TEST(Rendezvous, AnotherJobsRankIsSentAway) {
  ReadyCount gone;  // the stranger; until then the rendezvous is open
  const auto outcomes = RunProcesses(3, 30, [&](int which) -> Result<std::string> {
    RendezvousSpec spec = TestRendezvous(which == 2 ? 1 : which, 2);
    if (which == 2) spec.job += 1;
    if (which == 1) ZPP_REQUIRE(gone.Await(1, Deadline::In(10)));
    auto joined = JoinControlPlane(std::move(spec), {}, Deadline::In(which == 2 ? 2 : 20));
    if (which == 2) gone.Arrive();
    ZPP_ASSIGN_OR_RETURN(auto plane, std::move(joined));
    ZPP_RETURN_IF_ERROR(plane->AllGather("", Deadline::In(10)).status());
    plane->Leave();
    return std::string();
  });
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0].ToString();
  EXPECT_TRUE(outcomes[1].ok()) << outcomes[1].ToString();
  EXPECT_THAT(outcomes[2].status.message(), HasSubstr("rank 0 never came"));
  EXPECT_THAT(outcomes[2].status.message(), HasSubstr("rank 0 of another job"));
}

// Connects and does what hostile or lost clients do, until told to stop.
void Harass(double seconds) {
  std::mt19937 random(1);
  std::vector<internal::Fd> silent;
  const Deadline end = Deadline::In(seconds);
  for (int attempt = 0; !end.expired(); ++attempt) {
    auto fd = internal::Connect({.host = "127.0.0.1", .port = TestRendezvous(0, 1).ports.front()},
                                Deadline::In(0.1));
    if (!fd.ok()) {
      ::usleep(2000);
      continue;
    }
    std::string bytes(random() % 4000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    // Half a header, a header with a huge length, a hello that is cut, noise.
    const std::string header("ZPPC\x01\x01\x00\x00\xff\xff\xff\x7f", 12);
    if (attempt % 4 == 0) bytes = header.substr(0, 7);
    if (attempt % 4 == 1) bytes = header + bytes;
    if (attempt % 4 == 2) bytes = header.substr(0, 8) + std::string("\x14\0\0\0", 4) + "short";
    (void)::send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (attempt % 3 == 0 && silent.size() < 200) silent.push_back(std::move(fd).value());
  }
}

TEST(Rendezvous, HostileClientsNeitherCrashNorBlockIt) {
  const auto outcomes = RunProcesses(4, 30, [](int which) -> Result<std::string> {
    if (which == 3) {
      Harass(1.5);
      return std::string();
    }
    if (which == 2) ::usleep(1000000);
    ZPP_ASSIGN_OR_RETURN(auto plane, JoinTestPlane(which, 3));
    ZPP_RETURN_IF_ERROR(plane->AllGather("", Deadline::In(10)).status());
    plane->Leave();
    return std::string();
  });
  EXPECT_TRUE(AllOk(outcomes));
}

TEST(Handshake, NamesAllWhoDifferAndInWhat) {
  const auto outcomes = RunProcesses(4, 30, [](int rank) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(auto plane, JoinTestPlane(rank, 4));
    const Status status = Agree(*plane, {{"colour", rank % 2 == 1 ? "red" : "blue"}, {"size", "4"}},
                                Deadline::In(10));
    ZPP_RETURN_IF_ERROR(plane->AllGather("", Deadline::In(10)).status());
    plane->Leave();
    return status;
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status.code(), StatusCode::kMismatch) << outcome.ToString();
    EXPECT_THAT(outcome.status.message(),
                HasSubstr("ranks 1, 3 differ from rank 0 in colour ('red' against 'blue')"));
  }
}

// Waits for the verdict and says how long it took from `ready`.
Result<std::string> AwaitTheVerdict(ControlPlane& plane, double seconds) {
  const auto verdict = plane.AwaitVerdict(Deadline::In(seconds));
  if (!verdict) return std::string("none");
  return *verdict;
}

struct Loss {
  int signal;
  int victim;
  bool report;  // a survivor is stuck and says so
};

class ALoss : public testing::TestWithParam<Loss> {};

TEST_P(ALoss, IsNamedAlikeByEverySurvivor) {
  const auto [signal, victim, report] = GetParam();
  ReadyCount met;
  RankProcesses ranks(4, [&, victim = victim, report = report](int rank) -> Result<std::string> {
    // A long timeout: what is found is found by the end of a connection, or because somebody waits.
    ZPP_ASSIGN_OR_RETURN(auto plane, JoinTestPlane(rank, 4, 60));
    ZPP_RETURN_IF_ERROR(plane->AllGather("", Deadline::In(10)).status());
    met.Arrive();
    if (rank == victim) return AwaitTheVerdict(*plane, 60);
    if (report) {
      ::usleep(1300000);
      plane->Report((rank + 1) % 4, "stuck");  // names a neighbour, guilty or not
    }
    return AwaitTheVerdict(*plane, 10);
  });
  ASSERT_TRUE(met.Await(4, Deadline::In(20)));
  ranks.Signal(victim, signal);
  std::vector<int> survivors;
  for (int rank = 0; rank < 4; ++rank) {
    if (rank != victim) survivors.push_back(rank);
  }
  EXPECT_TRUE(ranks.Hear(survivors, Deadline::In(8)));
  const auto outcomes = ranks.Collect(Deadline::In(0));
  for (const int rank : survivors) {
    const Status& status = outcomes[static_cast<size_t>(rank)].status;
    EXPECT_EQ(status.code(), StatusCode::kPeerLost)
        << rank << ": " << outcomes[static_cast<size_t>(rank)].ToString();
    EXPECT_EQ(status.lost_rank(), victim) << status.ToString();
  }
}

INSTANTIATE_TEST_SUITE_P(ControlPlane, ALoss,
                         testing::Values(Loss{SIGKILL, 2, false}, Loss{SIGKILL, 0, false},
                                         Loss{SIGKILL, 3, true}, Loss{SIGSTOP, 2, true},
                                         Loss{SIGSTOP, 0, true}, Loss{SIGSTOP, 3, true}),
                         [](const auto& test) {
                           const Loss& loss = test.param;
                           return std::string(loss.signal == SIGKILL ? "Kill" : "Stop") +
                                  std::to_string(loss.victim) + (loss.report ? "Stuck" : "Idle");
                         });

TEST(ControlPlane, SilenceIsLossAfterTheTimeout) {
  ReadyCount met;
  RankProcesses ranks(3, [&](int rank) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(auto plane, JoinTestPlane(rank, 3, /*timeout_s=*/1.0));
    met.Arrive();
    return AwaitTheVerdict(*plane, 10);
  });
  ASSERT_TRUE(met.Await(3, Deadline::In(20)));
  ranks.Signal(1, SIGSTOP);
  EXPECT_TRUE(ranks.Hear({0, 2}, Deadline::In(6)));
  const auto outcomes = ranks.Collect(Deadline::In(0));
  EXPECT_EQ(outcomes[0].status.lost_rank(), 1) << outcomes[0].ToString();
  EXPECT_EQ(outcomes[2].status.lost_rank(), 1) << outcomes[2].ToString();
}

TEST(ControlPlane, LeavingIsNoLoss) {
  const auto outcomes = RunProcesses(3, 30, [](int rank) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(auto plane, JoinTestPlane(rank, 3));
    ZPP_RETURN_IF_ERROR(plane->AllGather("", Deadline::In(10)).status());
    if (rank != 2) {  // the hub leaves too
      plane->Leave();
      return std::string("none");
    }
    return AwaitTheVerdict(*plane, 1);
  });
  EXPECT_TRUE(AllOk(outcomes));
  EXPECT_EQ(outcomes[2].value, "none");
}

// Whoever still asks is answered at once, not when his time is up.
TEST(ControlPlane, AGatherAfterTheHubHasLeftNamesIt) {
  const auto outcomes = RunProcesses(3, 30, [](int rank) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(auto plane, JoinTestPlane(rank, 3));
    if (rank == 2) ::usleep(200000);  // rank 1 asks before or while the hub leaves, this one after
    if (rank > 0) return plane->AllGather("", Deadline::In(20)).status();
    ::usleep(100000);
    plane->Leave();
    return std::string();
  });
  for (const int rank : {1, 2}) {
    const Status& status = outcomes[static_cast<size_t>(rank)].status;
    EXPECT_EQ(status.lost_rank(), 0) << rank << ": " << status.ToString();
  }
}

TEST(ControlPlane, AGatherThatSomebodyMissesNamesHim) {
  const auto outcomes = RunProcesses(3, 30, [](int rank) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(auto plane, JoinTestPlane(rank, 3));
    if (rank == 1) {
      ::usleep(1500000);
      return std::string();
    }
    return plane->AllGather("", Deadline::In(0.5)).status();
  });
  for (const int rank : {0, 2}) {
    EXPECT_THAT(outcomes[static_cast<size_t>(rank)].status.message(),
                HasSubstr("rank 1 never came"));
  }
}

TEST(ControlPlane, LargeBlobsArriveWhole) {
  const auto outcomes = RunProcesses(4, 30, [](int rank) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(auto plane, JoinTestPlane(rank, 4));
    const auto blob = [](int of) {
      return std::string((size_t{1} << 20) - static_cast<size_t>(of), static_cast<char>('a' + of));
    };
    for (int round = 0; round < 3; ++round) {
      ZPP_ASSIGN_OR_RETURN(auto all, plane->AllGather(blob(rank), Deadline::In(20)));
      for (int of = 0; of < 4; ++of) ZPP_REQUIRE(all[static_cast<size_t>(of)] == blob(of));
    }
    ZPP_REQUIRE(!plane->AllGather(blob(0) + "xx", Deadline::In(1)).ok());
    plane->Leave();
    return std::string();
  });
  EXPECT_TRUE(AllOk(outcomes));
}

// A rank whose own child still runs is dead all the same.
TEST(ControlPlane, AForkedChildDoesNotHideItsParentsDeath) {
  RankProcesses ranks(2, [](int rank) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(auto plane, JoinTestPlane(rank, 2, 60));
    ZPP_RETURN_IF_ERROR(plane->AllGather("", Deadline::In(10)).status());
    if (rank == 1) {
      if (::fork() == 0) {
        plane.reset();  // harmless in the child
        ::usleep(4000000);
        ::_exit(0);
      }
      ::usleep(100000);
      ::raise(SIGKILL);
    }
    return AwaitTheVerdict(*plane, 3);
  });
  EXPECT_TRUE(ranks.Hear({0}, Deadline::In(6)));
  const auto outcomes = ranks.Collect(Deadline::In(0));
  EXPECT_EQ(outcomes[0].status.lost_rank(), 1) << outcomes[0].ToString();
}

}  // namespace
}  // namespace zpp::test
