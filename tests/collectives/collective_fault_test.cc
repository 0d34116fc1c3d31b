// Collectives over transports that misbehave: right, or an error on every rank in time; never wrong
// and never hanging.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "collectives/communicator.h"
#include "collectives/transport/fault.h"
#include "collectives/transport/in_process.h"
#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

constexpr int kWorld = 4;
constexpr int64_t kElems = 50'000;
constexpr int kFaulty = 2;

// Rank kFaulty's transport has the fault.
std::vector<std::unique_ptr<Communicator>> MakeRanks(Fault fault, const CollectivePolicy& policy,
                                                     double timeout_s) {
  InProcessWorld world = MakeInProcessWorld(kWorld);
  if (fault.kind == FaultKind::kDie) {
    // The dead tell nobody: all that the others see is that its control plane is gone.
    fault.die = [control = std::exchange(world.controls[kFaulty], nullptr)]() mutable {
      control.reset();
    };
  }
  world.transports[kFaulty] = MakeFaulty(std::move(world.transports[kFaulty]), fault);
  fault.die = nullptr;
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (size_t rank = 0; rank < kWorld; ++rank) {
    CommunicatorOptions options;
    options.policy = policy;
    options.policy.min_compress_bytes = 0;
    options.timeout_s = timeout_s;
    ranks.push_back(*Communicator::Create(std::move(world.transports[rank]), world.controls[rank],
                                          *Topology::EvenNodes(kWorld, 2), options));
  }
  return ranks;
}

// What an all-reduce of constants ends in on every rank; ok only with the right sum.
std::vector<RankOutcome> AllReduceWith(const Fault& fault, const CollectivePolicy& policy,
                                       double timeout_s) {
  auto ranks = MakeRanks(fault, policy, timeout_s);
  return RunThreads(kWorld, [&](int rank) -> Result<std::string> {
    Communicator& mine = *ranks[static_cast<size_t>(rank)];
    const std::vector<float> in(kElems, static_cast<float>(rank + 1));
    std::vector<float> out(kElems, -1);
    for (int call = 0; call < 3; ++call) {
      const Status status =
          mine.AllReduce({DType::kF32, in.data(), kElems}, {DType::kF32, out.data(), kElems});
      if (!status.ok()) {
        // It sticks.
        ZPP_REQUIRE(mine.Barrier().code() == status.code());
        ZPP_REQUIRE(mine.status().code() == status.code());
        return status;
      }
      for (float value : out) ZPP_REQUIRE(value > 9.9F && value < 10.1F);
    }
    return std::string();
  });
}

const CollectivePolicy kPolicies[] = {CollectivePolicy::Lossless(), CollectivePolicy::Gradients()};

void ExpectAllEndIn(const std::vector<RankOutcome>& outcomes,
                    const std::vector<StatusCode>& codes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const StatusCode code = outcomes[rank].status.code();
    EXPECT_NE(std::find(codes.begin(), codes.end(), code), codes.end())
        << "rank " << rank << ": " << outcomes[rank].ToString();
  }
}

TEST(CollectiveFault, ADelayOnlyDelays) {
  for (const CollectivePolicy& policy : kPolicies) {
    for (int64_t nth = 0; nth < 8; ++nth) {
      const Fault fault{.kind = FaultKind::kDelay, .nth_message = nth, .delay_s = 0.02};
      EXPECT_TRUE(AllOk(AllReduceWith(fault, policy, 30)));
    }
  }
}

TEST(CollectiveFault, ALostMessageEndsAllInTime) {
  for (const CollectivePolicy& policy : kPolicies) {
    for (FaultKind kind : {FaultKind::kDrop, FaultKind::kStall}) {
      for (int64_t nth : {0, 1, 3, 5}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + " of message " + std::to_string(nth));
        ExpectAllEndIn(AllReduceWith({.kind = kind, .nth_message = nth}, policy, 0.2),
                       {StatusCode::kDeadlineExceeded, StatusCode::kAborted});
      }
    }
  }
}

TEST(CollectiveFault, ATruncatedMessageIsDataLossOnItsReceiverAndEndsAll) {
  for (const CollectivePolicy& policy : kPolicies) {
    for (int64_t nth = 0; nth < 6; ++nth) {
      const auto outcomes =
          AllReduceWith({.kind = FaultKind::kTruncate, .nth_message = nth}, policy, 30);
      ExpectAllEndIn(outcomes, {StatusCode::kDataLoss, StatusCode::kAborted});
      EXPECT_TRUE(std::ranges::any_of(outcomes, [](const RankOutcome& outcome) {
        return outcome.status.code() == StatusCode::kDataLoss;
      }));
    }
  }
}

TEST(CollectiveFault, ARankThatDiesIsNamedByAllOthers) {
  for (const CollectivePolicy& policy : kPolicies) {
    for (int64_t nth = 0; nth < 6; ++nth) {
      const auto outcomes =
          AllReduceWith({.kind = FaultKind::kDie, .nth_message = nth}, policy, 30);
      for (int rank = 0; rank < kWorld; ++rank) {
        const Status& status = outcomes[static_cast<size_t>(rank)].status;
        if (rank == kFaulty) {
          EXPECT_EQ(status.code(), StatusCode::kAborted);
        } else {
          EXPECT_EQ(status.lost_rank(), kFaulty) << status.ToString();
        }
      }
    }
  }
}

}  // namespace
}  // namespace zpp::test
