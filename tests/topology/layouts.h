// The layouts that topology tests run over: even, uneven and scattered nodes, one to four tiers.
#pragma once

#include <string>
#include <vector>

#include "topology/topology.h"

namespace zpp {

struct Layout {
  std::string name;
  int world = 0;
  std::vector<std::vector<int>> labels;  // as Topology::FromLabels takes them

  Topology Build() const {
    Result<Topology> topology = Topology::FromLabels(world, labels);
    return topology.ok() ? *topology : Topology();
  }
};

inline std::vector<Layout> TenLayouts() {
  return {
      {"one_rank", 1, {}},
      {"flat", 7, {}},
      {"even_nodes", 8, {{0, 0, 0, 0, 1, 1, 1, 1}}},
      {"uneven_nodes", 7, {{0, 1, 1, 1, 2, 2, 2}}},
      {"round_robin_nodes", 6, {{0, 1, 2, 0, 1, 2}}},
      {"scattered_uneven_nodes", 9, {{5, 3, 3, 5, 9, 5, 3, 5, 5}}},
      {"nodes_of_one", 4, {{3, 2, 1, 0}}},
      {"one_node_in_two_tiers", 3, {{0, 0, 0}}},
      {"uneven_racks", 10, {{0, 0, 0, 1, 2, 2, 3, 3, 3, 3}, {0, 0, 0, 0, 0, 0, 1, 1, 1, 1}}},
      {"four_tiers_scattered",
       12,
       {{0, 1, 0, 2, 3, 4, 4, 0, 5, 5, 2, 1},
        {0, 0, 0, 1, 1, 2, 2, 0, 3, 3, 1, 0},
        {0, 0, 0, 0, 0, 1, 1, 0, 1, 1, 0, 0}}},
  };
}

}  // namespace zpp
