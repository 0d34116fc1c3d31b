// Who am I? What the launchers' variables say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"

namespace zpp {

struct LaunchEnv {
  std::string launcher;  // "torchrun", "Open MPI", ...: whose variables were read
  int rank = 0;
  int world = 1;
  std::optional<int> local_rank, local_size;
  // Where rank 0 listens; the first port that is free. Empty for a world of one.
  std::string host;
  std::vector<uint16_t> ports;
  // The same for the ranks of one start of one job, else different.
  uint64_t job = 0;
};

// The first launcher of which any of the leading variables is set:
//   torchrun  RANK, WORLD_SIZE (LOCAL_RANK, LOCAL_WORLD_SIZE)
//   Open MPI  OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE (.._LOCAL_RANK, .._LOCAL_SIZE)
//   PMI       PMI_RANK, PMI_SIZE (MPI_LOCALRANKID, MPI_LOCALNRANKS)
//   MVAPICH   MV2_COMM_WORLD_RANK, MV2_COMM_WORLD_SIZE (.._LOCAL_RANK, .._LOCAL_SIZE)
//   Slurm     SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS (SLURM_LOCALID,
//   SLURM_STEP_NUM_NODES)
//
// Where rank 0 listens: ZPP_COMM_ID=host:port, else MASTER_ADDR and MASTER_PORT. Of these, a port
// that is taken (torchrun keeps its own store there) makes the next seven candidates. Without them,
// launchers other than torchrun that started all ranks on this host (local size == world) use
// 127.0.0.1 and ports drawn from the launcher's job id.
//
// kNotFound: no launcher's variables. kInvalidArgument: half of a set (says what is missing), a
// number that is none, a rank outside the world, no way to know where rank 0 listens.
Result<LaunchEnv> ReadLaunchEnv();

}  // namespace zpp
