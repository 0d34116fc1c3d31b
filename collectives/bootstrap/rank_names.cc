#include "collectives/bootstrap/internal/rank_names.h"

#include <algorithm>

namespace zpp::internal {

std::string NameRanks(std::span<const int> ranks) {
  constexpr size_t kMost = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kMost) text += " and " + std::to_string(ranks.size() - kMost) + " more";
  return text;
}

}  // namespace zpp::internal
