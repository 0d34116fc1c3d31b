// The throttle and the faults, over ranks as threads.
#include <gtest/gtest.h>
#include <signal.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "collectives/transport/fault.h"
#include "collectives/transport/in_process.h"
#include "collectives/transport/throttle.h"
#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

using Bytes = std::vector<std::byte>;
using Clock = Deadline::Clock;
constexpr double kPatience_s = 30;

double Since_s(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<Ticket> StartSend(Transport& transport, int peer, Tag tag, const Bytes& bytes) {
  const SendOp send{peer, tag, bytes};
  return transport.Start({&send, 1}, {});
}

Status Receive(Transport& transport, int peer, Tag tag, Bytes& bytes,
               double patience_s = kPatience_s) {
  const RecvOp recv{peer, tag, bytes};
  ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({}, {&recv, 1}));
  return transport.Wait(ticket, Deadline::In(patience_s));
}

std::vector<std::unique_ptr<Transport>> ThrottledGroup(const Topology& topology,
                                                       const std::vector<double>& rates) {
  auto ranks = MakeInProcessGroup(topology.world());
  for (auto& rank : ranks) rank = *MakeThrottled(std::move(rank), topology, rates);
  return ranks;
}

TEST(Throttle, RefusesWhatIsNoRate) {
  const Topology two = *Topology::EvenNodes(2, 2);
  const auto refused = [&](const std::vector<double>& rates) {
    return MakeThrottled(std::move(MakeInProcessGroup(2)[0]), two, rates).status().code() ==
           StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({0, -1}));
  EXPECT_TRUE(refused({std::nan("")}));
  EXPECT_TRUE(refused({0, std::numeric_limits<double>::infinity()}));
  EXPECT_TRUE(refused({0, 1, 1}));
  EXPECT_FALSE(refused({}));
  EXPECT_EQ(MakeThrottled(std::move(MakeInProcessGroup(3)[0]), two, {}).status().code(),
            StatusCode::kInvalidArgument);
}

// 2 nodes x 2 ranks, 20 MB/s per node: each rank's share is 10 MB/s. No message can arrive before
// its last byte would have left that link; how much later depends on the machine and is not
// asserted.
TEST(Throttle, NothingArrivesEarly) {
  const Topology topology = *Topology::EvenNodes(4, 2);
  auto ranks = ThrottledGroup(topology, {0, 20e6});
  constexpr size_t kSize = 100'000;
  const Clock::time_point start = Clock::now();
  const auto outcomes = RunThreads(4, [&](int rank) -> Result<std::string> {
    Transport& mine = *ranks[static_cast<size_t>(rank)];
    const int peer = (rank + 2) % 4;
    const Bytes out(kSize);
    std::vector<Bytes> in(5, Bytes(kSize));
    std::vector<SendOp> sends;
    for (Tag i = 0; i < in.size(); ++i) sends.push_back({peer, i, out});
    ZPP_ASSIGN_OR_RETURN(const Ticket sent, mine.Start(sends, {}));
    for (Tag i = 0; i < in.size(); ++i) {
      ZPP_RETURN_IF_ERROR(Receive(mine, peer, i, in[i]));
      ZPP_REQUIRE(Since_s(start) >= static_cast<double>((i + 1) * kSize) / 10e6);
    }
    return mine.Wait(sent, Deadline::In(kPatience_s)).ok() ? Result<std::string>("")
                                                           : Internal("send");
  });
  EXPECT_TRUE(AllOk(outcomes));
}

TEST(Throttle, InsideANodeItIsFree) {
  auto ranks = ThrottledGroup(*Topology::EvenNodes(4, 2), {0, 1});  // one byte per second across
  const Bytes out(1 << 20, std::byte{1});
  Bytes in(1 << 20);
  const Ticket sent = *StartSend(*ranks[0], 1, 1, out);
  EXPECT_TRUE(Receive(*ranks[1], 0, 1, in).ok());
  EXPECT_TRUE(ranks[0]->Wait(sent, Deadline::In(kPatience_s)).ok());
  EXPECT_EQ(in, out);
}

TEST(Throttle, ADeadlineEndsAWaitForTheLink) {
  auto ranks = ThrottledGroup(*Topology::EvenNodes(2, 2), {0, 1});
  const Bytes out(1000);
  const Ticket sent = *StartSend(*ranks[0], 1, 1, out);
  const Status status = ranks[0]->Wait(sent, Deadline::In(0.02));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.ToString();
  EXPECT_EQ(ranks[0]->Start({}, {}).status().message(), status.message());
}

TEST(Throttle, AbortWakesAWaitForTheLink) {
  auto ranks = ThrottledGroup(*Topology::EvenNodes(2, 2), {0, 1});
  const Bytes out(1000);
  const Ticket sent = *StartSend(*ranks[0], 1, 1, out);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ranks[0]->Abort({StatusCode::kAborted, "enough"});
  });
  EXPECT_EQ(ranks[0]->Wait(sent, Deadline::Never()).message(), "enough");
  other.join();
}

// One message of 100 bytes from rank 0 to rank 1 after `before` good ones; how it goes for both.
struct Delivery {
  Status sent, received;
  Bytes in;
};
Delivery DeliverWith(const Fault& fault, int before = 2, double patience_s = kPatience_s) {
  auto ranks = MakeInProcessGroup(2);
  ranks[0] = MakeFaulty(std::move(ranks[0]), fault);
  Delivery delivery;
  const Bytes out(100, std::byte{0x5a});
  std::thread receiver([&] {
    for (int i = 0; i <= before; ++i) {
      delivery.in.assign(100, std::byte{0});
      delivery.received = Receive(*ranks[1], 0, static_cast<Tag>(i), delivery.in, patience_s);
      if (!delivery.received.ok()) return;
    }
  });
  for (int i = 0; i <= before && delivery.sent.ok(); ++i) {
    const Result<Ticket> ticket = StartSend(*ranks[0], 1, static_cast<Tag>(i), out);
    delivery.sent =
        ticket.ok() ? ranks[0]->Wait(*ticket, Deadline::In(patience_s)) : ticket.status();
  }
  receiver.join();
  return delivery;
}

TEST(Fault, NoneChangesNothing) {
  const Delivery delivery = DeliverWith({});
  EXPECT_TRUE(delivery.sent.ok() && delivery.received.ok());
  EXPECT_EQ(delivery.in, Bytes(100, std::byte{0x5a}));
}

TEST(Fault, ADroppedMessageIsMissedByTheReceiverOnly) {
  const Delivery delivery = DeliverWith({.kind = FaultKind::kDrop, .nth_message = 2}, 2, 0.2);
  EXPECT_TRUE(delivery.sent.ok()) << delivery.sent.ToString();
  EXPECT_EQ(delivery.received.code(), StatusCode::kDeadlineExceeded);
}

TEST(Fault, ADelayedMessageComesLater) {
  const Clock::time_point start = Clock::now();
  const Delivery delivery =
      DeliverWith({.kind = FaultKind::kDelay, .nth_message = 2, .delay_s = 0.05});
  EXPECT_TRUE(delivery.sent.ok() && delivery.received.ok());
  EXPECT_GE(Since_s(start), 0.05);
}

TEST(Fault, ATruncatedMessageIsDataLoss) {
  const Delivery delivery = DeliverWith({.kind = FaultKind::kTruncate, .nth_message = 2});
  EXPECT_EQ(delivery.received.code(), StatusCode::kDataLoss);
}

TEST(Fault, AFlippedBitIsOneBitDrawnFromTheSeed) {
  const auto flipped = [](uint64_t seed) {
    const Delivery delivery =
        DeliverWith({.kind = FaultKind::kFlipBit, .nth_message = 2, .seed = seed});
    EXPECT_TRUE(delivery.received.ok());
    int bits = 0, place = 0;
    for (int i = 0; i < 100; ++i) {
      const auto wrong =
          std::to_integer<unsigned>(delivery.in[static_cast<size_t>(i)] ^ std::byte{0x5a});
      bits += std::popcount(wrong);
      if (wrong != 0) place = i * 8 + std::countr_zero(wrong);
    }
    EXPECT_EQ(bits, 1);
    return place;
  };
  EXPECT_EQ(flipped(1), flipped(1));
  EXPECT_NE(flipped(1), flipped(2));
}

TEST(Fault, AStalledRankHangsUntilItsDeadline) {
  const Delivery delivery = DeliverWith({.kind = FaultKind::kStall, .nth_message = 1}, 2, 0.2);
  EXPECT_EQ(delivery.sent.code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(delivery.received.ok());
}

TEST(Fault, ADyingRankIsLostToItsPeersAndDeadToItself) {
  const Delivery delivery = DeliverWith({.kind = FaultKind::kDie, .nth_message = 2});
  EXPECT_EQ(delivery.sent.code(), StatusCode::kAborted);
  EXPECT_EQ(delivery.received.lost_rank(), 0) << delivery.received.ToString();
}

TEST(Fault, DyingIsTheCallersWay) {
  const auto outcomes = RunProcesses(1, kPatience_s, [](int) -> Result<std::string> {
    auto ranks = MakeInProcessGroup(2);
    auto faulty =
        MakeFaulty(std::move(ranks[0]), {.kind = FaultKind::kDie, .die = [] { raise(SIGKILL); }});
    (void)StartSend(*faulty, 1, 1, Bytes(1));
    return std::string("survived");
  });
  EXPECT_EQ(outcomes[0].kind, RankOutcome::kSignalled);
  EXPECT_EQ(outcomes[0].detail, SIGKILL);
}

}  // namespace
}  // namespace zpp::test
