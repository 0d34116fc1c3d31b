#include "topology/declared.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/env.h"

namespace zpp {
namespace {

using Declaration = Result<std::optional<Topology>>;

Declaration FromFile(int world) {
  ZPP_ASSIGN_OR_RETURN(Topology topology, ReadTopologyFile(GetEnv(EnvVar::kTopologyFile)));
  if (topology.world() == world) return std::optional(std::move(topology));
  return InvalidArgument("the topology of ZPP_TOPOLOGY has " + std::to_string(topology.world()) +
                         " ranks, this job has " + std::to_string(world));
}

Declaration FromLocalSize(int world, int local_size) {
  std::vector<int> sizes;
  for (int left = world; left > 0; left -= local_size) sizes.push_back(std::min(left, local_size));
  ZPP_ASSIGN_OR_RETURN(Topology topology, Topology::Nodes(sizes));
  return std::optional(std::move(topology));
}

}  // namespace

Declaration DeclaredTopology(int world, int nodes) {
  if (world < 1 || world > Topology::kMaxWorld) return Topology::EvenNodes(world, 1).status();
  if (EnvIsSet(EnvVar::kTopologyFile)) return FromFile(world);
  if (nodes == 1) return std::optional(Topology::Flat(world));
  if (nodes != 0) {
    ZPP_ASSIGN_OR_RETURN(Topology topology, Topology::EvenNodes(world, nodes));
    return std::optional(std::move(topology));
  }
  ZPP_ASSIGN_OR_RETURN(const int64_t local_size, GetEnvInteger(EnvVar::kLocalSize, 0, 1 << 20));
  if (local_size == 0) return std::optional<Topology>();
  if (local_size >= world) return std::optional(Topology::Flat(world));
  return FromLocalSize(world, static_cast<int>(local_size));
}

}  // namespace zpp
