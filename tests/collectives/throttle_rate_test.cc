// Measures the throttle. A machine that is busy with other things may fail it: label slow, run
// alone.
#include <gtest/gtest.h>

#include <chrono>

#include "collectives/transport/in_process.h"
#include "collectives/transport/throttle.h"
#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

// Both ranks of both nodes exchange with their peer across, 256 KiB at a time and four in flight:
// bytes per second that leave a node, as a share of the link's rate.
double ShareOfRate(double node_bytes_per_s, double seconds) {
  constexpr size_t kMessage_bytes = 256 << 10, kInFlight = 4;
  const Topology topology = *Topology::EvenNodes(4, 2);
  auto ranks = MakeInProcessGroup(4);
  for (auto& rank : ranks) rank = *MakeThrottled(std::move(rank), topology, {0, node_bytes_per_s});
  const auto messages = static_cast<Tag>(node_bytes_per_s / 2 * seconds / kMessage_bytes) + 1;
  const auto start = Deadline::Clock::now();
  const auto outcomes = RunThreads(4, [&](int rank) -> Result<std::string> {
    Transport& mine = *ranks[static_cast<size_t>(rank)];
    const int peer = (rank + 2) % 4;
    const std::vector<std::byte> out(kMessage_bytes);
    std::vector<std::vector<std::byte>> in(kInFlight, out);
    std::vector<Ticket> tickets;
    for (Tag i = 0; i < messages; ++i) {
      if (i >= kInFlight) ZPP_RETURN_IF_ERROR(mine.Wait(tickets[i - kInFlight], Deadline::In(60)));
      const SendOp send{peer, i, out};
      const RecvOp recv{peer, i, in[i % kInFlight]};
      ZPP_ASSIGN_OR_RETURN(const Ticket ticket, mine.Start({&send, 1}, {&recv, 1}));
      tickets.push_back(ticket);
    }
    for (Tag i = messages - std::min<Tag>(messages, kInFlight); i < messages; ++i) {
      ZPP_RETURN_IF_ERROR(mine.Wait(tickets[i], Deadline::In(60)));
    }
    return std::string();
  });
  EXPECT_TRUE(AllOk(outcomes));
  const double took_s = std::chrono::duration<double>(Deadline::Clock::now() - start).count();
  return 2.0 * static_cast<double>(messages * kMessage_bytes) / took_s / node_bytes_per_s;
}

TEST(ThrottleRate, IsReachedAndNeverExceeded) {
  for (double rate : {12.5e6, 125e6, 1250e6}) {
    const double share = ShareOfRate(rate, 1);
    RecordProperty("share_at_" + std::to_string(static_cast<int>(rate / 1e6)) + "_MB_per_s",
                   std::to_string(share));
    printf("%.0f MB/s: %.1f %% of the rate\n", rate / 1e6, share * 100);
    EXPECT_LE(share, 1.0);
    EXPECT_GE(share, 0.93);
  }
}

}  // namespace
}  // namespace zpp::test
