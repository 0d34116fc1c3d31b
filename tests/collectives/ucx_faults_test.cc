// A rank is killed or stopped in mid-exchange: every survivor names it in time, and a new world
// follows in the same processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <vector>

#include "tests/collectives/process_world.h"
#include "tests/harness/rank_processes.h"
#include "tests/harness/ranks.h"
#include "tests/harness/ready_count.h"

namespace zpp::test {
namespace {

using testing::HasSubstr;

constexpr double kDeadline_s = 1.5;

// All to all, until it fails. `going` (may be null) hears when the first round is over.
Status ExchangeForEver(Transport& transport, size_t bytes, ReadyCount* going = nullptr) {
  const int world = transport.world(), rank = transport.rank();
  std::vector<std::byte> mine(bytes), others(bytes * static_cast<size_t>(world));
  for (Tag step = 1;; ++step) {
    std::vector<SendOp> sends;
    std::vector<RecvOp> recvs;
    for (int peer = 0; peer < world; ++peer) {
      if (peer == rank) continue;
      sends.push_back({peer, step, mine});
      recvs.push_back({peer, step, {others.data() + bytes * static_cast<size_t>(peer), bytes}});
    }
    ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start(sends, recvs));
    // The first round may wait for ranks that are still busy with connecting.
    const bool first = step == 1 && going != nullptr;
    ZPP_RETURN_IF_ERROR(transport.Wait(ticket, Deadline::In(first ? 20 : kDeadline_s)));
    if (first) going->Arrive();
  }
}

struct Fault {
  const char* name;
  int signal;
  int victim;
  int nodes;
  size_t bytes;
};

class UcxFault : public testing::TestWithParam<Fault> {};

TEST_P(UcxFault, IsNamedByEverySurvivorInTime) {
  const Fault fault = GetParam();
  ReadyCount going;
  RankProcesses ranks(4, [&](int rank) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(const Topology topology, Topology::EvenNodes(4, fault.nodes));
    ZPP_ASSIGN_OR_RETURN(auto made, MakeUcxRank(rank, topology, 20));
    Status status = ExchangeForEver(*made.transport, fault.bytes, &going);
    // What failed stays so, and goes away without a crash.
    ZPP_REQUIRE(made.transport->Start({}, {}).status().message() == status.message());
    ZPP_REQUIRE(AbandonedUcxWorkers() == 1);
    made.transport.reset();
    made.control.reset();
    return status;
  });
  ASSERT_TRUE(going.Await(4, Deadline::In(20)));
  ::usleep(50000);
  const auto struck = Deadline::Clock::now();
  ranks.Signal(fault.victim, fault.signal);
  std::vector<int> survivors;
  for (int rank = 0; rank < 4; ++rank) {
    if (rank != fault.victim) survivors.push_back(rank);
  }
  EXPECT_TRUE(ranks.Hear(survivors, Deadline::In(10)));
  double slowest_s = 0;
  for (const int rank : survivors) {
    const std::chrono::duration<double> took = ranks.heard_at(rank) - struck;
    slowest_s = std::max(slowest_s, took.count());
  }
  const auto outcomes = ranks.Collect(Deadline::In(0));
  for (const int rank : survivors) {
    const RankOutcome& outcome = outcomes[static_cast<size_t>(rank)];
    EXPECT_EQ(outcome.status.code(), StatusCode::kPeerLost) << rank << ": " << outcome.ToString();
    EXPECT_EQ(outcome.status.lost_rank(), fault.victim) << rank << ": " << outcome.ToString();
  }
  EXPECT_LT(slowest_s, 2 * kDeadline_s);
}

INSTANTIATE_TEST_SUITE_P(Ranks, UcxFault,
                         testing::Values(Fault{"KillSharedMemory", SIGKILL, 2, 1, 1 << 20},
                                         Fault{"KillTcp", SIGKILL, 3, 4, 1 << 20},
                                         Fault{"KillMixed", SIGKILL, 1, 2, 1 << 20},
                                         Fault{"KillHub", SIGKILL, 0, 2, 1 << 20},
                                         Fault{"KillSmallMessages", SIGKILL, 2, 1, 64},
                                         Fault{"StopSharedMemory", SIGSTOP, 2, 1, 1 << 20},
                                         Fault{"StopTcp", SIGSTOP, 1, 4, 1 << 20},
                                         Fault{"StopHub", SIGSTOP, 0, 2, 1 << 20}),
                         [](const auto& test) { return std::string(test.param.name); });

// Alive, but it never comes to the exchange.
TEST(Ucx, ARankThatTakesNoPartIsNamed) {
  const auto outcomes = RunProcesses(3, 30, [](int rank) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(auto made, MakeUcxRank(rank, Topology::Flat(3)));
    if (rank == 1) {
      ::usleep(4000000);
      return made.control->Verdict() ? *made.control->Verdict() : Internal("no verdict");
    }
    return ExchangeForEver(*made.transport, 100);
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status.lost_rank(), 1) << outcome.ToString();
    EXPECT_THAT(outcome.status.message(), HasSubstr("rank 1 lives but takes no part"));
  }
}

// Keeps the verdict back until it is released, and hears what the transport asks for.
class WithheldVerdict final : public ControlPlane {
 public:
  explicit WithheldVerdict(std::shared_ptr<ControlPlane> plane) : plane_(std::move(plane)) {}
  void Release() { released_ = true; }
  bool reported() const { return reported_; }
  int awaited() const { return awaited_; }

  int rank() const override { return plane_->rank(); }
  int world() const override { return plane_->world(); }
  Result<std::vector<std::string>> AllGather(const std::string& mine, Deadline deadline) override {
    return plane_->AllGather(mine, deadline);
  }
  std::optional<Status> Verdict() override { return released_ ? plane_->Verdict() : std::nullopt; }
  int verdict_fd() const override { return -1; }
  void Abort(const std::string& why) override { plane_->Abort(why); }
  void Report(int suspect, const std::string& why) override {
    reported_ = true;
    plane_->Report(suspect, why);
  }
  std::optional<Status> AwaitVerdict(Deadline deadline) override {
    ++awaited_;
    return plane_->AwaitVerdict(deadline);
  }
  void Leave() override { plane_->Leave(); }

 private:
  const std::shared_ptr<ControlPlane> plane_;
  bool released_ = false, reported_ = false;
  int awaited_ = 0;
};

// Between a failure and its verdict: Start and Test never block, and what was started then ends
// with the verdict.
TEST(Ucx, StartDoesNotWaitForTheVerdict) {
  RankProcesses ranks(2, [](int rank) -> Result<std::string> {
    const Topology topology = *Topology::EvenNodes(2, 2);  // TCP notices a peer that is gone
    ZPP_ASSIGN_OR_RETURN(auto plane, JoinTestPlane(rank, 2));
    const auto control = std::make_shared<WithheldVerdict>(std::move(plane));
    ZPP_ASSIGN_OR_RETURN(
        auto transport,
        MakeUcxTransport(control, topology, {.profile = UcxProfile::kHost, .timeout_s = 60},
                         Deadline::In(20)));
    if (rank == 1) ::raise(SIGKILL);
    std::vector<std::byte> out(1 << 20), in(out.size());
    const SendOp send{1, 1, out};
    const RecvOp recv{1, 1, in};
    ZPP_ASSIGN_OR_RETURN(const Ticket first, transport->Start({&send, 1}, {&recv, 1}));
    for (const Deadline deadline = Deadline::In(20); !control->reported(); ::usleep(1000)) {
      ZPP_REQUIRE(!deadline.expired());
      ZPP_ASSIGN_OR_RETURN(const bool complete, transport->Test(first));
      ZPP_REQUIRE(!complete);
    }
    const Result<Ticket> second = transport->Start({&send, 1}, {&recv, 1});
    ZPP_REQUIRE_MSG(second.ok(), second.status().message());
    for (const Ticket ticket : {first, *second}) {
      const Result<bool> complete = transport->Test(ticket);
      ZPP_REQUIRE(complete.ok() && !*complete);
    }
    ZPP_REQUIRE(control->awaited() == 0);  // nothing has blocked so far
    ZPP_REQUIRE(control->AwaitVerdict(Deadline::In(20)).has_value());
    control->Release();
    const Status status = transport->Test(*second).status();
    ZPP_REQUIRE(transport->Start({&send, 1}, {}).status().message() == status.message());
    return status;
  });
  EXPECT_TRUE(ranks.Hear({0}, Deadline::In(60)));
  const RankOutcome survivor = ranks.Collect(Deadline::In(0))[0];
  EXPECT_EQ(survivor.status.code(), StatusCode::kPeerLost) << survivor.ToString();
  EXPECT_EQ(survivor.status.lost_rank(), 1) << survivor.ToString();
}

TEST(Ucx, TheSurvivorsGoOnInASmallerWorld) {
  RankProcesses ranks(4, [](int rank) -> Result<std::string> {
    int world = 4, self = rank;
    for (; world > 2; --world) {
      ZPP_ASSIGN_OR_RETURN(auto made, MakeUcxRank(self, *Topology::EvenNodes(world, 2)));
      if (self == world - 1) {
        ::usleep(300000);
        ::raise(SIGKILL);
      }
      const Status status = ExchangeForEver(*made.transport, 1 << 18);
      ZPP_REQUIRE_MSG(status.lost_rank() == world - 1, status.ToString());
    }
    ZPP_ASSIGN_OR_RETURN(auto last, MakeUcxRank(self, Topology::Flat(world)));
    std::byte out{7}, in{0};
    const SendOp send{1 - self, 1, {&out, 1}};
    const RecvOp recv{1 - self, 1, {&in, 1}};
    ZPP_ASSIGN_OR_RETURN(const Ticket ticket, last.transport->Start({&send, 1}, {&recv, 1}));
    ZPP_RETURN_IF_ERROR(last.transport->Wait(ticket, Deadline::In(10)));
    ZPP_REQUIRE(in == out);
    ZPP_REQUIRE(AbandonedUcxWorkers() == 2);
    ZPP_RETURN_IF_ERROR(last.transport->Shutdown(Deadline::In(10)));
    return std::string();
  });
  EXPECT_TRUE(ranks.Hear({0, 1}, Deadline::In(30)));
  const auto outcomes = ranks.Collect(Deadline::In(0));
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0].ToString();
  EXPECT_TRUE(outcomes[1].ok()) << outcomes[1].ToString();
}

}  // namespace
}  // namespace zpp::test
