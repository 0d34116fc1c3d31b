#include <gtest/gtest.h>

#include "collectives/transport/fault.h"
#include "collectives/transport/in_process.h"
#include "collectives/transport/throttle.h"
#include "tests/collectives/transport_conformance.h"

namespace zpp::test {
namespace {

using Transports = std::vector<std::unique_ptr<Transport>>;

// Every rank a node of its own, on links that are fast enough for the suite and slow enough to hold
// messages back.
Transports Throttled(int world) {
  std::vector<int> sizes(static_cast<size_t>(world), 1);
  const Topology topology = *Topology::Nodes(sizes);
  Transports transports = MakeInProcessGroup(world);
  const std::vector<double> rates(static_cast<size_t>(topology.tiers()), 1e9);
  for (auto& transport : transports) {
    transport = *MakeThrottled(std::move(transport), topology, rates);
  }
  return transports;
}

Transports Faultless(int world) {
  Transports transports = MakeInProcessGroup(world);
  for (auto& transport : transports) transport = MakeFaulty(std::move(transport), {});
  return transports;
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, TransportConformance,
    testing::Values(ThreadBackend("InProcess", [](int world) { return MakeInProcessGroup(world); }),
                    ThreadBackend("Adversary",
                                  [](int world) {
                                    return MakeInProcessGroup(world, {.adversary_seed = 1});
                                  }),
                    ThreadBackend("Throttled", Throttled), ThreadBackend("Faultless", Faultless)),
    BackendName);

}  // namespace
}  // namespace zpp::test
