// UCX holds the contract of a transport, over shared memory, over TCP, and with both in one world.
#include <gtest/gtest.h>

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

INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance,
                         testing::Values(ProcessBackend("SharedMemory", OneNode),
                                         ProcessBackend("WithoutWindows", WithoutWindows),
                                         ProcessBackend("SomeWithoutWindow", SomeWithoutWindow),
                                         ProcessBackend("Tcp", NodePerRank),
                                         ProcessBackend("Mixed", TwoNodes)),
                         BackendName);

}  // namespace
}  // namespace zpp::test
