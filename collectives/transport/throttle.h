// A slow link without root: paces what is sent across a tier.
#pragma once

#include <memory>
#include <vector>

#include "collectives/transport/transport.h"
#include "topology/topology.h"

namespace zpp {

// Every send to a peer of tier t passes a virtual link of tier_bytes_per_s[t] and is handed to
// `inner` when its last byte would have left that link. The link belongs to one domain of level t
// (tier 1: a node) and one direction, and is split evenly over the domain's ranks, whether they
// send or not; what arrives is not paced again. 0, or a tier that is not listed, is free. Messages
// of one tier keep their order. kInvalidArgument for a rate that is negative, NaN or infinite, for
// more rates than tiers, and for a topology of another world.
Result<std::unique_ptr<Transport>> MakeThrottled(std::unique_ptr<Transport> inner,
                                                 const Topology& topology,
                                                 const std::vector<double>& tier_bytes_per_s);

}  // namespace zpp
