// Proves plans without a network: every rank's plan is run on symbols instead of numbers. Equal
// symbols are equal bits, so a proof holds for all values, all sizes and all timings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"

namespace zpp {

struct Proof {
  std::vector<std::string>
      faults;  // empty: proven. The first few; each names a rank, a stage and what is wrong
  std::vector<int64_t> tier_bytes;  // sent by all ranks, per tier
  int64_t messages = 0;
  int max_quantizations = 0;     // of one contribution to an output, on its worst way
  int64_t distinct_outputs = 0;  // expressions over all ranks and parts
  std::string sample;            // one output as a formula: "q4(q8(0)+q8(1))+q4(q8(2)+q8(3))"

  bool ok() const { return faults.empty(); }
};

struct CheckOptions {
  bool in_place = false;  // the output lies on the input
  int chunks = 1;         // for tier_bytes only: the rest holds for every chunking
};

// Proves that the plans of all ranks, run together, compute what `request` asks for:
// 1. every send meets exactly one receive, in the same stage, with the same parts, encoding and
// tier;
// 2. every output part is written once and is exactly the expression that the collective is defined
// by: each rank's
//    contribution once and in order, each divided once when a mean is asked for, encoded as often
//    as there are hops;
// 3. all ranks hold the same expression for a part, and reductions the same expression over all
// parts;
// 4. nothing is read before it is written, nor written twice, nor touched in flight; the input is
// never written;
//    in place, no input is read after the output on top of it was written.
// Cost: the sum of all ranks' work, a fraction of a second for 1024 ranks.
Proof Check(std::span<const Plan> plans, const PlanRequest& request, const Partition& parts,
            const CheckOptions& options = {});

// The functions below return "" or what is wrong.

// All indices of a plan are in range and its stages ascend: it is safe to walk. Check() begins with
// it.
std::string CheckWellFormed(const Plan& plan, int64_t num_parts);

// Nobody waits for ever: a message ends only when both sides have started it (the worst a transport
// may do), a rank starts a chunk only when a lane is free. One pipeline per rank, or one for all.
std::string CheckProgress(std::span<const Plan> plans, std::span<const Pipeline> pipelines);

// Slots that live at the same time do not overlap, and all lie in the arena.
std::string CheckArena(const Plan& plan, const Partition& parts, const Arena& arena, int chunk,
                       int chunks);

// In place, part p of the output lies on part p of the input: see 4. above.
std::string CheckInPlace(const Plan& plan);

}  // namespace zpp
