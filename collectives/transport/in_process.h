// Ranks as threads of one process: the reference semantics of a Transport, and of a ControlPlane.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/bootstrap/out_of_band.h"
#include "collectives/transport/transport.h"

namespace zpp {

struct InProcessOptions {
  // Set: messages are delivered late and in an odd order drawn from this seed, and receive buffers
  // are filled with 0xa5 until then, so that code which relies on luck fails. For tests.
  std::optional<uint64_t> adversary_seed;
};

// `world` transports of one group, one per rank; each is then used by its own thread.
// Messages are handed over without a copy in between: a send is complete when its receiver has
// copied it, which happens inside the receiver's Start, Wait, Test and Progress. Blocked calls
// sleep on a condition variable. Stricter than other fabrics: a tag that is used twice in flight is
// kInternal at the receiver and kInvalidArgument at whoever posts a receive twice. A transport that
// is destroyed without Shutdown() is a lost rank for those who need something from it.
std::vector<std::unique_ptr<Transport>> MakeInProcessGroup(int world,
                                                           const InProcessOptions& options = {});

// `world` control planes of one group. A rank whose control plane is destroyed without Leave() is
// lost. There is no heartbeat between threads: Report() of a rank that is still there ends in a
// kAborted verdict with the reason given.
std::vector<std::shared_ptr<ControlPlane>> MakeInProcessControl(int world);

// Both, joined: a verdict wakes the blocked transports, and a transport that fails reports it.
struct InProcessWorld {
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::shared_ptr<ControlPlane>> controls;
};
InProcessWorld MakeInProcessWorld(int world, const InProcessOptions& options = {});

}  // namespace zpp
