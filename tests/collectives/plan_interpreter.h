// Runs the plans of all ranks on real bytes, in one thread, as oddly as the contracts allow: ranks
// advance in random order, bytes arrive as late as a wait permits, receives trash their memory
// first. It shares nothing with the executor but the codec, whose values it sums naively.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"

namespace zpp::test {

using Bytes = std::vector<std::byte>;

struct InterpretOptions {
  Pipeline pipeline;
  uint32_t seed = 1;
  bool in_place = false;  // the output lies on the input
};

struct Outcome {
  std::string fault;  // "" when all ranks came to their end
  std::vector<Bytes> output;
  std::vector<int64_t> tier_bytes;  // that really moved, per tier
  int64_t messages = 0;
  int max_lanes = 0;  // arenas that one rank held at a time
};

// Elements of a rank's buffers.
int64_t InputElems(const Plan& plan, const Partition& parts, const PlanRequest& request);
int64_t OutputElems(const Plan& plan, const Partition& parts);

// input[r]: InputElems values of the user's type.
Outcome Interpret(std::span<const Plan> plans, const PlanRequest& request, const Partition& parts,
                  std::span<const Bytes> input, const InterpretOptions& options);

}  // namespace zpp::test
