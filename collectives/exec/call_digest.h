// What the ranks of a call must agree on, in one number.
#pragma once

#include <cstdint>

#include "collectives/plan/plan.h"

namespace zpp {

// Equal on ranks that make the same call; on others different, but for chance: with the bits that a
// tag keeps 2^-43 for each pair of messages that could meet. What makes no difference to the
// messages of this kind of call is left out. Time: the ranks.
uint64_t CallDigest(const PlanRequest& request, const Partition& parts, int chunks);

}  // namespace zpp
