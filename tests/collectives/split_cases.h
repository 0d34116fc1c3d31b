// What split communicators are put through, over threads and over processes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "common/status.h"
#include "topology/topology.h"

namespace zpp::test {

inline ConstVec In(const std::vector<float>& x) {
  return {DType::kF32, x.data(), static_cast<int64_t>(x.size())};
}
inline Vec Out(std::vector<float>& x) {
  return {DType::kF32, x.data(), static_cast<int64_t>(x.size())};
}

// One communicator per rank over a flat in-process world.
std::vector<std::unique_ptr<Communicator>> ConnectThreads(int world);

// Eight ranks in two nodes as tensor, pipeline and data parallel ones, 2 x 2 x 2.
Topology MegatronTopology();
// Three splits of eight ranks; collectives of every kind, started and blocking, interleaved on all
// and on the root. A value is the digest of what this rank received.
Result<std::string> RunMegatron(Communicator& comm);

}  // namespace zpp::test
