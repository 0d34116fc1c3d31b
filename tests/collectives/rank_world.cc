// Ranks as threads, and the layouts they are arranged in.
#include "collectives/transport/in_process.h"
#include "tests/collectives/collective_cases.h"
#include "tests/harness/ranks.h"

namespace zpp::test {

Result<std::vector<std::string>> RunWorld(const WorldOptions& options, const CommBody& body) {
  const int world = options.topology.world();
  InProcessWorld net = MakeInProcessWorld(world, {.adversary_seed = options.adversary_seed});
  const auto outcomes = RunThreads(world, [&](int rank) -> Result<std::string> {
    const auto at = static_cast<size_t>(rank);
    auto comm = Communicator::Create(std::move(net.transports[at]), std::move(net.controls[at]),
                                     options.topology, options.communicator);
    ZPP_RETURN_IF_ERROR(comm.status());
    auto value = body(**comm);
    if (!value.ok()) {
      (*comm)->Abort(value.status());
      return value;
    }
    ZPP_RETURN_IF_ERROR((*comm)->Shutdown(Deadline::In(30)));
    return value;
  });
  std::vector<std::string> values;
  std::string faults;
  for (size_t r = 0; r < outcomes.size(); ++r) {
    if (!outcomes[r].ok())
      faults += "rank " + std::to_string(r) + ": " + outcomes[r].ToString() + "\n";
    values.push_back(outcomes[r].value);
  }
  if (!faults.empty()) return Internal(faults);
  return values;
}

std::vector<std::pair<std::string, Topology>> Layouts() {
  const std::vector<int> two = {0, 0, 1, 1}, scattered = {0, 1, 0, 1, 1};
  const std::vector<int> even = {2, 2}, uneven = {3, 1}, lone = {1, 1}, three = {2, 1, 2};
  const std::vector<int> cube = {2, 2, 2};
  const std::vector<std::vector<int>> labels = {scattered};
  // Nodes of 2, 1 and 2 ranks in racks of 2 nodes and 1.
  const std::vector<std::vector<int>> ragged = {{0, 0, 1, 2, 2}, {0, 0, 0, 1, 1}};
  return {{"world 1", Topology::Flat(1)},
          {"flat 2", Topology::Flat(2)},
          {"flat 3", Topology::Flat(3)},
          {"flat 4", Topology::Flat(4)},
          {"2+2", *Topology::Nodes(even)},
          {"3+1", *Topology::Nodes(uneven)},
          {"1+1", *Topology::Nodes(lone)},
          {"2+1+2", *Topology::Nodes(three)},
          {"scattered", *Topology::FromLabels(5, labels)},
          {"2x2x2", *Topology::Regular(cube)},
          {"ragged racks", *Topology::FromLabels(5, ragged)}};
}

}  // namespace zpp::test
