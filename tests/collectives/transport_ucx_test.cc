// UCX holds the contract of a transport, over shared memory, over TCP, and with both in one world.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/collectives/process_world.h"
#include "tests/collectives/transport_conformance.h"

namespace zpp::test {
namespace {

// Keeps the control plane of the transport alive: the transport shares it.
Result<std::unique_ptr<Transport>> OneNode(int rank, int world) {
  ZPP_ASSIGN_OR_RETURN(auto made, MakeUcxRank(rank, Topology::Flat(world)));
  return std::move(made.transport);
}

Result<std::unique_ptr<Transport>> WithoutWindows(int rank, int world) {
  ZPP_ASSIGN_OR_RETURN(auto made, MakeUcxRank(rank, Topology::Flat(world), 20, false));
  return std::move(made.transport);
}

Result<std::unique_ptr<Transport>> SomeWithoutWindow(int rank, int world) {
  ZPP_ASSIGN_OR_RETURN(auto made, MakeUcxRank(rank, Topology::Flat(world), 20, rank % 2 == 0));
  return std::move(made.transport);
}

Result<std::unique_ptr<Transport>> NodePerRank(int rank, int world) {
  const std::vector<int> sizes(static_cast<size_t>(world), 1);
  ZPP_ASSIGN_OR_RETURN(auto made, MakeUcxRank(rank, *Topology::Nodes(sizes)));
  return std::move(made.transport);
}

Result<std::unique_ptr<Transport>> TwoNodes(int rank, int world) {
  ZPP_ASSIGN_OR_RETURN(auto made,
                       MakeUcxRank(rank, *Topology::EvenNodes(world, world < 2 ? 1 : 2)));
  return std::move(made.transport);
}

// What the receiver says of a message of 100 000 bytes where 200 are due, and how rank 0 is
// reached.
std::string WordsAboutLength(bool node_window) {
  const auto outcomes = RunProcesses(2, 60, [&](int rank) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(auto made, MakeUcxRank(rank, Topology::Flat(2), 20, node_window));
    if (rank == 0) {
      const std::vector<std::byte> out(100'000);
      std::vector<std::byte> never(8);  // rank 0 stays until rank 1 has failed
      const SendOp send{1, 1, out};
      const RecvOp recv{1, 2, never};
      ZPP_ASSIGN_OR_RETURN(const Ticket ticket, made.transport->Start({&send, 1}, {&recv, 1}));
      (void)made.transport->Wait(ticket, Deadline::In(20));
      return made.transport->info().name;
    }
    std::vector<std::byte> in(200);
    const RecvOp recv{0, 1, in};
    ZPP_ASSIGN_OR_RETURN(const Ticket ticket, made.transport->Start({}, {&recv, 1}));
    return made.transport->Wait(ticket, Deadline::In(20)).message();
  });
  return outcomes[0].value + "; " + outcomes[1].value;
}

// A reference tells how long its message is; of one that travels whole, UCX tells only that it is
// longer.
TEST(UcxTransport, LargeMessagesInsideANodeTravelAsReferences) {
  EXPECT_THAT(WordsAboutLength(true), testing::AllOf(testing::HasSubstr("+window"),
                                                     testing::HasSubstr("sent 100000 bytes")));
  EXPECT_THAT(WordsAboutLength(false), testing::AllOf(testing::Not(testing::HasSubstr("+window")),
                                                      testing::HasSubstr("sent more bytes")));
}

INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance,
                         testing::Values(ProcessBackend("SharedMemory", OneNode),
                                         ProcessBackend("WithoutWindows", WithoutWindows),
                                         ProcessBackend("SomeWithoutWindow", SomeWithoutWindow),
                                         ProcessBackend("Tcp", NodePerRank),
                                         ProcessBackend("Mixed", TwoNodes)),
                         BackendName);

}  // namespace
}  // namespace zpp::test
