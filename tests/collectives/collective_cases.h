// One collective call with inputs that tell rank and index, a poisoned output, guards around it,
// and every check that one rank can make alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "common/status.h"
#include "topology/topology.h"

namespace zpp::test {

enum class Shards { kEqual, kUneven, kMostlyEmpty };

struct CollectiveCase {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  bool in_place = false;
  Shards shards = Shards::kEqual;
  int64_t count = 0;  // elements of the whole vector; rounded up to a multiple of the world where
                      // shares must be equal
  CollectivePolicy policy = {};
  int root = 0;
  bool async = false;  // through Start and Poll
  std::string ToString() const;
};

// Runs the case and checks it. The value is the output's bits as a digest, for comparison with
// other ranks and runs.
Result<std::string> RunCase(Communicator& comm, const CollectiveCase& c);

struct WorldOptions {
  Topology topology;
  CommunicatorOptions communicator = {};
  std::optional<uint64_t> adversary_seed = {};
};
// A communicator per rank, each on a thread of its own over the in-process transport. Every rank
// returns ok, all calls that return a digest agree where `same_on_all_ranks`, else the text says
// what is wrong. Shuts down cleanly.
using CommBody = std::function<Result<std::string>(Communicator& comm)>;
Result<std::vector<std::string>> RunWorld(const WorldOptions& options, const CommBody& body);

std::vector<std::pair<std::string, Topology>> Layouts();

}  // namespace zpp::test
