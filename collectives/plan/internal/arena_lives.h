// When a slot holds data: shared by the arena and its check.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "collectives/plan/plan.h"

namespace zpp::internal {

// Moments from the first write to the last use, both included: 2k for the ops before the exchange
// of stage k, 2k+1 for the exchange and the ops during it. end -1: never used.
struct SlotLife {
  int begin = std::numeric_limits<int>::max();
  int end = -1;
  bool Meets(const SlotLife& other) const { return begin <= other.end && other.begin <= end; }
  bool operator==(const SlotLife&) const = default;
};

std::vector<SlotLife> SlotLives(const Plan& plan);
// Of one chunk, a multiple of 64.
int64_t SlotBytes(const Plan& plan, const Partition& parts, uint32_t slot, int chunk, int chunks);

}  // namespace zpp::internal
