// Ranks as forked processes that meet over loopback: what the tests of bootstrap and UCX start
// from.
#pragma once

#include <unistd.h>

#include <memory>

#include "collectives/bootstrap/control_plane.h"
#include "collectives/transport/in_process.h"
#include "collectives/transport/ucx_transport.h"
#include "topology/topology.h"

namespace zpp::test {

// The job of this test program's children: its ports and its id come from the parent's pid.
inline RendezvousSpec TestRendezvous(int rank, int world) {
  const auto parent = static_cast<uint32_t>(::getppid());
  RendezvousSpec spec{.rank = rank,
                      .world = world,
                      .job = parent,
                      .host = "127.0.0.1",
                      .ports = {},
                      .listener = {}};
  for (uint32_t i = 0; i < 8; ++i) {
    spec.ports.push_back(static_cast<uint16_t>(20000 + (parent * 17 + i) % 12000));
  }
  return spec;
}

inline Result<std::shared_ptr<ControlPlane>> JoinTestPlane(int rank, int world,
                                                           double timeout_s = 20) {
  return JoinControlPlane(TestRendezvous(rank, world), {.heartbeat_s = 0.1, .timeout_s = timeout_s},
                          Deadline::In(20));
}

struct UcxRank {
  std::shared_ptr<ControlPlane> control;
  std::unique_ptr<Transport> transport;
};

inline Result<UcxRank> MakeUcxRank(int rank, const Topology& topology, double timeout_s = 20,
                                   bool node_window = true) {
  if (topology.world() == 1) {  // needs no peer and no network
    return UcxRank{.control = nullptr, .transport = std::move(MakeInProcessGroup(1).front())};
  }
  ZPP_ASSIGN_OR_RETURN(auto control, JoinTestPlane(rank, topology.world(), timeout_s));
  ZPP_ASSIGN_OR_RETURN(auto transport, MakeUcxTransport(control, topology,
                                                        {.profile = UcxProfile::kHost,
                                                         .node_window = node_window,
                                                         .timeout_s = timeout_s},
                                                        Deadline::In(20)));
  return UcxRank{.control = std::move(control), .transport = std::move(transport)};
}

}  // namespace zpp::test
