// Small messages between ranks: what all must know together before anything is updated, and what
// must be the same on all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "collectives/communicator.h"
#include "common/status.h"
#include "quant/codec.h"
#include "zero/exact_sum.h"

namespace zpp::internal {

struct StepFigures {
  ExactSum squares;  // of the gradient's elements that count; its nonfinite() is the overflow flag
  ErrorStats gradients;  // encoders' statistics
  ErrorStats weights;
  void Merge(const StepFigures& other);
};

// `mine` of all ranks of `comm`, merged in rank order: the same on every rank. Collective.
Result<StepFigures> Exchange(Communicator& comm, const StepFigures& mine);

uint64_t DigestOf(std::string_view text);
// kMismatch with one of `names` when that value is not the same on all ranks. Collective.
Status CheckSame(Communicator& comm, std::span<const uint64_t> mine,
                 std::span<const std::string> names);

}  // namespace zpp::internal
