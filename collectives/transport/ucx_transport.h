// Messages between processes over UCX: shared memory inside a node, TCP or RDMA across.
#pragma once

#include <memory>
#include <string>

#include "collectives/bootstrap/out_of_band.h"
#include "collectives/transport/transport.h"
#include "topology/topology.h"

namespace zpp {

// Host: shared memory and TCP, every message eager. RDMA: rendezvous and zero copy are left to UCX.
// Auto: RDMA where this machine has an InfiniBand device.
enum class UcxProfile : uint8_t { kAuto, kHost, kRdma };

struct UcxOptions {
  UcxProfile profile = UcxProfile::kAuto;
  // With the host profile, messages of 32 KiB to 1 MiB between ranks of one node go through memory
  // that they share, where the machine allows it; ranks may differ in this.
  bool node_window = true;
  // How long a failure that Test() or Start() meets waits for the control plane's verdict; Wait()
  // waits for one more of its own deadlines.
  double timeout_s = 30;
};
// ZPP_UCX_PROFILE, ZPP_NODE_WINDOW.
Result<UcxOptions> UcxOptionsFromEnv();

// All ranks of `control` call this. Ranks of one node of `topology` use whatever UCX offers between
// them; ranks of different nodes use the network, even on one host. Tags must be below 2^48. World:
// 2 to 65536. kMismatch names a rank whose UCX is of another version. A failed transport is
// abandoned, not torn down: about 3 MiB and 10 descriptors stay until the process ends.
Result<std::unique_ptr<Transport>> MakeUcxTransport(std::shared_ptr<ControlPlane> control,
                                                    const Topology& topology,
                                                    const UcxOptions& options, Deadline deadline);

// "1.13.1": of the library that is loaded, not of the headers.
std::string UcxRuntimeVersion();
// How many failed workers this process keeps.
int AbandonedUcxWorkers();

}  // namespace zpp
