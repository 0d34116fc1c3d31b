// From a launcher's variables, a unique id or the user's own channel to a communicator over UCX; or
// ranks as threads.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "common/status.h"
#include "topology/topology.h"

namespace zpp {

struct ConnectOptions {
  CommunicatorOptions communicator;
  double startup_timeout_s = 30;
  // Overrides what the ranks find out about their nodes.
  std::optional<Topology> topology;
  // Declared nodes when `topology` is absent: 0 finds them out.
  int nodes = 0;
  // Above 0: what crosses nodes is throttled to so many bytes per second and node (for
  // demonstrations).
  double inter_bytes_per_s = 0;
};

// torchrun's variables, then Open MPI's, PMI/PMIx's, Slurm's; a half-set group is an error that
// names what is missing.
Result<std::unique_ptr<Communicator>> ConnectFromEnv(const ConnectOptions& options = {});

// What ConnectFromEnv would refuse in this process's ZPP_* variables, in a job of `world` ranks:
// for a launcher, which then says it once. No network.
Status CheckEnvironment(int world, const ConnectOptions& options = {});

// In the manner of NCCL: one process makes the id (and becomes rank 0), the application carries it
// to the others.
struct UniqueId {
  std::array<char, 128> bytes{};
};
Result<UniqueId> MakeUniqueId();
Result<std::unique_ptr<Communicator>> ConnectWithId(const UniqueId& id, int world, int rank,
                                                    const ConnectOptions& options = {});

// The application gathers bytes itself (MPI_Allgather, a store): each rank gives a blob and gets
// all, in rank order.
using GatherCallback = std::function<Result<std::vector<std::string>>(const std::string& mine)>;
Result<std::unique_ptr<Communicator>> ConnectWithCallback(const GatherCallback& gather, int world,
                                                          int rank,
                                                          const ConnectOptions& options = {});

// `world` ranks for as many threads of this process: the reference semantics, for tests and
// experiments.
Result<std::vector<std::unique_ptr<Communicator>>> ConnectInProcess(
    int world, const ConnectOptions& options = {});

}  // namespace zpp
