// What the user says about the layout, before anything is found out.
#pragma once

#include <optional>

#include "common/status.h"
#include "topology/topology.h"

namespace zpp {

// The first of: the file that ZPP_TOPOLOGY names; `nodes` (0: not given), even ones; ZPP_LOCAL_SIZE
// consecutive ranks per node, fewer in the last. One node is a flat topology. Nothing when none of
// them is given: then the ranks find out (node_identity.h). An error when a declaration is bad or
// does not have `world` ranks.
Result<std::optional<Topology>> DeclaredTopology(int world, int nodes);

}  // namespace zpp
