// What the in-process transport and control plane promise beyond the contract of every transport.
#include "collectives/transport/in_process.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

using Bytes = std::vector<std::byte>;
constexpr double kPatience_s = 30;

Result<Ticket> StartSend(Transport& transport, int peer, Tag tag, const Bytes& bytes) {
  const SendOp send{peer, tag, bytes};
  return transport.Start({&send, 1}, {});
}
Result<Ticket> StartRecv(Transport& transport, int peer, Tag tag, Bytes& bytes) {
  const RecvOp recv{peer, tag, bytes};
  return transport.Start({}, {&recv, 1});
}

TEST(InProcess, ASendIsCompleteOnlyWhenItWasReceived) {
  const auto ranks = MakeInProcessGroup(2);
  const Bytes out(8, std::byte{1});
  const Ticket sent = *StartSend(*ranks[0], 1, 1, out);
  EXPECT_FALSE(*ranks[0]->Test(sent));
  Bytes in(8);
  const Ticket received = *StartRecv(*ranks[1], 0, 1, in);
  EXPECT_TRUE(*ranks[0]->Test(sent));
  EXPECT_TRUE(*ranks[1]->Test(received));
  EXPECT_EQ(in, out);
}

TEST(InProcess, ATagTwiceInFlightIsAnErrorOfTheProgram) {
  const auto ranks = MakeInProcessGroup(2);
  const Bytes out(8);
  ASSERT_TRUE(StartSend(*ranks[0], 1, 5, out).ok());
  ASSERT_TRUE(StartSend(*ranks[0], 1, 5, out).ok());
  EXPECT_EQ(ranks[1]->Start({}, {}).ok(), true);  // sees them while it starts
  EXPECT_EQ(ranks[1]->Start({}, {}).status().code(), StatusCode::kInternal);
}

TEST(InProcess, AReceiveExpectedTwiceIsRefused) {
  const auto ranks = MakeInProcessGroup(2);
  Bytes in(8), other(8);
  ASSERT_TRUE(StartRecv(*ranks[1], 0, 5, in).ok());
  EXPECT_EQ(StartRecv(*ranks[1], 0, 5, other).status().code(), StatusCode::kInvalidArgument);
}

TEST(InProcess, ATagMayBeUsedAgainWhenItsMessageHasArrived) {
  const auto ranks = MakeInProcessGroup(2);
  for (int i = 0; i < 3; ++i) {
    const Bytes out(4, static_cast<std::byte>(i));
    Bytes in(4);
    const Ticket sent = *StartSend(*ranks[0], 1, 5, out);
    const Ticket received = *StartRecv(*ranks[1], 0, 5, in);
    EXPECT_TRUE(*ranks[1]->Test(received));
    EXPECT_TRUE(*ranks[0]->Test(sent));
    EXPECT_EQ(in, out);
  }
}

TEST(InProcess, ShutdownRefusesToLeaveBatchesBehind) {
  const auto ranks = MakeInProcessGroup(1);
  ASSERT_TRUE(ranks[0]->Start({}, {}).ok());
  EXPECT_EQ(ranks[0]->Shutdown(Deadline::In(kPatience_s)).code(), StatusCode::kInvalidArgument);
}

// The memory of a sender that failed may be gone: nobody reads it any more.
TEST(InProcess, AFailedSendersMessageIsNotDelivered) {
  const auto ranks = MakeInProcessGroup(2);
  const Bytes out(8, std::byte{1});
  ASSERT_TRUE(StartSend(*ranks[0], 1, 1, out).ok());
  ranks[0]->Abort({StatusCode::kAborted, "enough"});
  ranks[0]->Progress();
  Bytes in(8);
  const Ticket received = *StartRecv(*ranks[1], 0, 1, in);
  EXPECT_EQ(ranks[1]->Wait(received, Deadline::In(0.05)).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(in, Bytes(8));
}

TEST(InProcess, TheAdversaryDeliversLateOutOfOrderAndTheSameWayAgain) {
  const auto order = [](uint64_t seed) {
    const auto ranks = MakeInProcessGroup(2, {.adversary_seed = seed});
    const Bytes out(1, std::byte{1});
    std::vector<Bytes> in(20, Bytes(1));
    std::vector<Ticket> tickets;
    for (Tag tag = 0; tag < in.size(); ++tag) {
      EXPECT_TRUE(StartSend(*ranks[0], 1, tag, out).ok());
      tickets.push_back(*StartRecv(*ranks[1], 0, tag, in[tag]));
    }
    std::vector<size_t> arrivals;
    std::vector<bool> seen(in.size());
    int visits = 0;
    while (arrivals.size() < in.size()) {
      ranks[1]->Progress();
      ++visits;
      for (size_t i = 0; i < in.size(); ++i) {
        if (seen[i] || in[i][0] != std::byte{1}) continue;
        seen[i] = true;
        arrivals.push_back(i);
      }
    }
    EXPECT_GT(visits, 20) << "never late";
    EXPECT_FALSE(std::ranges::is_sorted(arrivals)) << "never out of order";
    return arrivals;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

TEST(InProcessControl, GathersInRankOrderRoundAfterRound) {
  const auto controls = MakeInProcessControl(4);
  const auto outcomes = RunThreads(4, [&](int rank) -> Result<std::string> {
    for (int round = 0; round < 50; ++round) {
      const std::string mine(static_cast<size_t>(round * rank), static_cast<char>('a' + rank));
      ZPP_ASSIGN_OR_RETURN(auto all, controls[static_cast<size_t>(rank)]->AllGather(
                                         mine, Deadline::In(kPatience_s)));
      ZPP_REQUIRE(all.size() == 4);
      for (int r = 0; r < 4; ++r) {
        const std::string theirs(static_cast<size_t>(round * r), static_cast<char>('a' + r));
        ZPP_REQUIRE(all[static_cast<size_t>(r)] == theirs);
      }
    }
    return std::string();
  });
  EXPECT_TRUE(AllOk(outcomes));
}

TEST(InProcessControl, WhoNeverComesIsNamed) {
  const auto controls = MakeInProcessControl(3);
  const auto all = controls[0]->AllGather("x", Deadline::In(0.02));
  EXPECT_EQ(all.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(all.status().message().find("ranks 1, 2"), std::string::npos);
}

TEST(InProcessControl, LeavingIsNoLossButVanishingIs) {
  auto controls = MakeInProcessControl(3);
  controls[1]->Leave();
  controls[1].reset();
  EXPECT_FALSE(controls[0]->Verdict());
  controls[2].reset();
  ASSERT_TRUE(controls[0]->Verdict());
  EXPECT_EQ(controls[0]->Verdict()->lost_rank(), 2);
}

TEST(InProcessControl, TheFirstVerdictIsEverybodysAndWakesAll) {
  const auto controls = MakeInProcessControl(3);
  pollfd polled{controls[2]->verdict_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, 0), 0);
  std::thread stuck([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    controls[1]->Report(0, "no answer");
    controls[1]->Abort("too late");
  });
  const auto verdict = controls[2]->AwaitVerdict(Deadline::In(kPatience_s));
  stuck.join();
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->code(), StatusCode::kAborted);
  EXPECT_EQ(verdict->message(), "rank 1 gave up: no answer");
  EXPECT_EQ(controls[0]->Verdict()->message(), verdict->message());
  EXPECT_EQ(poll(&polled, 1, 0), 1);
  EXPECT_EQ(controls[0]->AllGather("x", Deadline::In(kPatience_s)).status().message(),
            verdict->message());
}

TEST(InProcessControl, NoVerdictWithinTheDeadline) {
  const auto controls = MakeInProcessControl(2);
  EXPECT_FALSE(controls[0]->AwaitVerdict(Deadline::In(0.02)));
}

// Rank 2 waits for rank 1, which lives; rank 0 times out. One failure ends the whole group, fast.
TEST(InProcessWorld, AFailureOfOneIsTheVerdictForAll) {
  auto world = MakeInProcessWorld(3);
  const auto outcomes = RunThreads(3, [&](int rank) -> Result<std::string> {
    Transport& mine = *world.transports[static_cast<size_t>(rank)];
    Bytes in(4);
    ZPP_ASSIGN_OR_RETURN(const Ticket ticket, StartRecv(mine, (rank + 2) % 3, 1, in));
    const Status status = mine.Wait(ticket, Deadline::In(rank == 0 ? 0.05 : kPatience_s));
    const auto expected = rank == 0 ? StatusCode::kDeadlineExceeded : StatusCode::kAborted;
    ZPP_REQUIRE_MSG(status.code() == expected, status.ToString());
    return std::string();
  });
  EXPECT_TRUE(AllOk(outcomes));
}

TEST(InProcessWorld, ALostRankIsNamedByAll) {
  auto world = MakeInProcessWorld(4);
  const auto outcomes = RunThreads(4, [&](int rank) -> Result<std::string> {
    const auto r = static_cast<size_t>(rank);
    if (rank == 3) {
      world.controls[r].reset();
      world.transports[r].reset();
      return std::string();
    }
    Bytes in(4);  // rank 0 waits for 2, 1 for 0, 2 for 1: nobody for 3
    const Result<Ticket> ticket = StartRecv(*world.transports[r], (rank + 2) % 3, 1, in);
    const Status status = ticket.ok()
                              ? world.transports[r]->Wait(*ticket, Deadline::In(kPatience_s))
                              : ticket.status();
    ZPP_REQUIRE_MSG(status.lost_rank() == 3, status.ToString());
    return std::string();
  });
  EXPECT_TRUE(AllOk(outcomes));
}

}  // namespace
}  // namespace zpp::test
