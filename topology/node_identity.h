// Who shares a node with whom: found out from the machine, never guessed from a device count.
#pragma once

#include <span>
#include <string>

#include "common/status.h"
#include "topology/topology.h"

namespace zpp {

// Ranks of equal identity share a node: boot id, host name, IPC and network namespace. ZPP_NODE_ID
// overrides all.
struct NodeIdentity {
  std::string text;
  bool operator==(const NodeIdentity&) const = default;
};
NodeIdentity ThisNode();

// One identity per rank. Two tiers when there are two nodes or more, flat otherwise.
Topology TopologyFromIdentities(std::span<const NodeIdentity> of_rank);

}  // namespace zpp
