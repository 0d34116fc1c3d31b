#include <array>

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

}  // namespace zpp::internal
