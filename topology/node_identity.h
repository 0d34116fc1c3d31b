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
// Where `proc` (a test may name another folder) tells no boot id, nothing is known: then each
// process is a node of its own, for equal host names do not make one machine.
NodeIdentity ThisNode(const std::string& proc = "/proc");

// Of this machine since it was started: containers share it. Empty when it is not known.
std::string BootId(const std::string& proc = "/proc");

// One identity per rank. Two tiers when there are two nodes or more, flat otherwise.
Topology TopologyFromIdentities(std::span<const NodeIdentity> of_rank);

}  // namespace zpp
