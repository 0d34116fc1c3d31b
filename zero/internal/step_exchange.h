// The one small message of a step: what all ranks must know together before anything is updated.
#pragma once

#include <span>
#include <type_traits>
#include <vector>

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

// Values of a trivially copyable type from every rank, in rank order: world times as many. Between
// machines of one kind. Collective.
template <typename T>
Result<std::vector<T>> GatherValues(Communicator& comm, std::span<const T> mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(mine.size() * static_cast<size_t>(comm.world()));
  const auto bytes = static_cast<int64_t>(mine.size_bytes());
  ZPP_RETURN_IF_ERROR(
      comm.AllGather({DType::kByte, mine.data(), bytes},
                     {DType::kByte, all.data(), bytes * static_cast<int64_t>(comm.world())}));
  return all;
}

}  // namespace zpp::internal
