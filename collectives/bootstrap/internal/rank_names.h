// How messages call ranks, and what they say of those that others wait for.
#pragma once

#include <span>
#include <string>

namespace zpp::internal {

// "rank 2", "ranks 0, 3", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 9 more".
std::string NameRanks(std::span<const int> ranks);

// What may be wrong with a rank that others wait for in vain though it lives.
inline constexpr char kMayDiffer[] =
    "it may have called another collective, or with other sizes or options";

}  // namespace zpp::internal
