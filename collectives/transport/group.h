// Some ranks of a transport as a transport of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/transport/transport.h"

namespace zpp {

// ranks[i]: who rank i of the group is in `whole`, which is borrowed; all differ, and `rank` is
// this rank's place among them. Tags pass unchanged: whoever makes them keeps groups apart.
// Tickets, failures and Abort are those of `whole`, and so are the ranks that errors name. Shutdown
// lets go of nothing.
std::unique_ptr<Transport> MakeGroup(Transport* whole, std::vector<int32_t> ranks, int rank);

}  // namespace zpp
