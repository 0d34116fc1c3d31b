// Which ranks are alike, so that one plan stands for all of them.
#include <algorithm>
#include <map>

#include "collectives/plan/internal/planners.h"
#include "collectives/plan/simulator.h"

namespace zpp {
namespace internal {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ (value + 0x51ED2701)) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 31);
}

// A number per domain that tells its shape: equal for domains that look alike inside.
std::vector<std::vector<uint64_t>> Shapes(const Topology& topology) {
  std::vector<std::vector<uint64_t>> shapes(static_cast<size_t>(topology.tiers()) + 1);
  for (int level = 0; level <= topology.tiers(); ++level) {
    for (int id = 0; id < topology.NumDomains(level); ++id) {
      uint64_t hash = 17;
      for (int32_t child : topology.Get(level, id).children) {
        hash = Mix(hash, shapes[static_cast<size_t>(level) - 1][static_cast<size_t>(child)]);
      }
      shapes[static_cast<size_t>(level)].push_back(hash);
    }
  }
  return shapes;
}

bool ChildrenAlike(const Domain& up, const std::vector<uint64_t>& shapes) {
  return std::all_of(up.children.begin(), up.children.end(), [&](int32_t child) {
    return shapes[static_cast<size_t>(child)] == shapes[static_cast<size_t>(up.children.front())];
  });
}

}  // namespace

// From the outside in: where all siblings look alike, places do not matter. Where one does not,
// each sibling is a class of its own, and so is every place inside.
std::vector<int32_t> ClassesByShape(const Topology& topology) {
  const auto shapes = Shapes(topology);
  std::map<std::vector<int32_t>, int32_t> numbers;
  std::vector<int32_t> classes;
  for (int rank = 0; rank < topology.world(); ++rank) {
    std::vector<int32_t> key;
    bool uneven = false;
    for (int level = topology.tiers() - 1; level >= 0; --level) {
      const Domain& up = topology.At(level + 1, rank);
      uneven = uneven || !ChildrenAlike(up, shapes[static_cast<size_t>(level)]);
      key.push_back(uneven ? topology.DomainId(level, rank) : -1);
    }
    const int32_t next = static_cast<int32_t>(numbers.size());
    classes.push_back(numbers.try_emplace(std::move(key), next).first->second);
  }
  return classes;
}

std::vector<int32_t> ClassPerRank(int world) {
  std::vector<int32_t> classes(static_cast<size_t>(world));
  for (int r = 0; r < world; ++r) classes[static_cast<size_t>(r)] = r;
  return classes;
}

}  // namespace internal

std::vector<int32_t> SymmetryClasses(const PlanRequest& request) {
  switch (request.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kAllToAll:
      return internal::ClassesByShape(*request.topology);
    case CollectiveKind::kBroadcast:  // the root is unlike the others, and so is every depth of its
                                      // trees
    case CollectiveKind::kBarrier:    // whom a rank signals depends on its number, not on its node
      return internal::ClassPerRank(request.topology->world());
  }
  return {};
}

}  // namespace zpp
