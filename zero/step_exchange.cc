#include <array>

#include "collectives/gather_values.h"
#include "common/hash.h"
#include "zero/internal/step_exchange.h"

namespace zpp::internal {
namespace {

struct Wire {
  std::array<std::byte, ExactSum::kBytes> squares;
  ErrorStats gradients, weights;
};

}  // namespace

void StepFigures::Merge(const StepFigures& other) {
  squares.Merge(other.squares);
  gradients.Merge(other.gradients);
  weights.Merge(other.weights);
}

Result<StepFigures> Exchange(Communicator& comm, const StepFigures& mine) {
  const Wire wire{mine.squares.Serialize(), mine.gradients, mine.weights};
  ZPP_ASSIGN_OR_RETURN(const std::vector<Wire> all,
                       GatherValues<Wire>(comm, std::span<const Wire>(&wire, 1)));
  StepFigures merged;
  for (const Wire& one : all) {
    merged.Merge({ExactSum::Deserialize(one.squares), one.gradients, one.weights});
  }
  return merged;
}

uint64_t DigestOf(std::string_view text) {
  Hash hash;
  hash.Add(text);
  return hash.value();
}

Status CheckSame(Communicator& comm, std::span<const uint64_t> mine,
                 std::span<const std::string> names) {
  ZPP_ASSIGN_OR_RETURN(const std::vector<uint64_t> all, GatherValues(comm, mine));
  for (int rank = 0; rank < comm.world(); ++rank) {
    for (size_t i = 0; i < mine.size(); ++i) {
      if (all[static_cast<size_t>(rank) * mine.size() + i] == all[i]) continue;
      return {StatusCode::kMismatch,
              names[i] + " on rank " + std::to_string(rank) +
                  " differs from that on rank 0: all ranks must give the same"};
    }
  }
  return {};
}

}  // namespace zpp::internal
