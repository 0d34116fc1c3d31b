#include "collectives/bootstrap/launch_env.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "collectives/bootstrap/internal/socket.h"
#include "common/env.h"

namespace zpp {
namespace {

// Several names in one field: the first that is set counts.
struct Launcher {
  const char* name;
  const char* rank;
  std::array<const char*, 2> size;
  const char* local_rank;
  const char* local_size;
  std::array<const char*, 3> job;  // together they tell one start of one job from every other
};

constexpr std::array kLaunchers = {
    Launcher{"torchrun",
             "RANK",
             {"WORLD_SIZE", nullptr},
             "LOCAL_RANK",
             "LOCAL_WORLD_SIZE",
             {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", nullptr}},
    Launcher{"Open MPI",
             "OMPI_COMM_WORLD_RANK",
             {"OMPI_COMM_WORLD_SIZE", nullptr},
             "OMPI_COMM_WORLD_LOCAL_RANK",
             "OMPI_COMM_WORLD_LOCAL_SIZE",
             {"OMPI_MCA_orte_hnp_uri", "PMIX_NAMESPACE", nullptr}},
    Launcher{"PMI",
             "PMI_RANK",
             {"PMI_SIZE", nullptr},
             "MPI_LOCALRANKID",
             "MPI_LOCALNRANKS",
             {"PMI_JOBID", nullptr, nullptr}},
    Launcher{"MVAPICH",
             "MV2_COMM_WORLD_RANK",
             {"MV2_COMM_WORLD_SIZE", nullptr},
             "MV2_COMM_WORLD_LOCAL_RANK",
             "MV2_COMM_WORLD_LOCAL_SIZE",
             {"MPISPAWN_ID", "MPIRUN_ID", nullptr}},
    Launcher{"Slurm",
             "SLURM_PROCID",
             {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
             "SLURM_LOCALID",
             nullptr,
             {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
};

constexpr int kMaxWorld = 1 << 20;
constexpr int kPortsTried = 8;

const char* Value(const char* name) {
  const char* value = name == nullptr ? nullptr : std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

Result<int> Number(const char* name, int low, int high) {
  const std::string_view text = Value(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return InvalidArgument(std::string(name) + "='" + std::string(text) + "' is not a number of " +
                           std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

// FNV-1a.
void Mix(uint64_t* hash, std::string_view text) {
  for (const char c : text) *hash = (*hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  *hash = (*hash ^ 0xffu) * 0x100000001b3u;
}

uint64_t JobOf(const Launcher& launcher) {
  uint64_t job = 0xcbf29ce484222325u;
  Mix(&job, GetEnv(EnvVar::kJobId));
  for (const char* name : launcher.job) {
    if (const char* value = Value(name)) Mix(&job, value);
  }
  return job;
}

const char* SizeName(const Launcher& launcher) {
  return Value(launcher.size[0]) != nullptr || launcher.size[1] == nullptr ? launcher.size[0]
                                                                           : launcher.size[1];
}

// PMIx gives the rank in the environment, but the size only to those who link it.
Status PmixAlone() {
  if (Value("PMIX_RANK") == nullptr) return {};
  return InvalidArgument(
      "PMIX_RANK is set, but PMIx does not tell the number of ranks in the environment: set RANK, "
      "WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
}

const Launcher* FindLauncher() {
  for (const Launcher& launcher : kLaunchers) {
    // SLURM_NTASKS alone only says that a batch job allows for so many.
    const bool sized = launcher.name != std::string_view("Slurm") &&
                       (Value(launcher.size[0]) != nullptr || Value(launcher.size[1]) != nullptr);
    if (Value(launcher.rank) != nullptr || sized) return &launcher;
  }
  return nullptr;
}

Status ReadRanks(const Launcher& launcher, LaunchEnv* env) {
  const char* size = SizeName(launcher);
  const bool has_rank = Value(launcher.rank) != nullptr;
  if (!has_rank || Value(size) == nullptr) {
    return InvalidArgument(std::string(has_rank ? launcher.rank : size) + " is set, but " +
                           (has_rank ? size : launcher.rank) + " is not (variables of " +
                           launcher.name + ")");
  }
  ZPP_ASSIGN_OR_RETURN(env->world, Number(size, 1, kMaxWorld));
  ZPP_ASSIGN_OR_RETURN(env->rank, Number(launcher.rank, 0, kMaxWorld));
  if (env->rank >= env->world) {
    return InvalidArgument(std::string(launcher.rank) + "=" + std::to_string(env->rank) +
                           " is not below " + size + "=" + std::to_string(env->world));
  }
  if (Value(launcher.local_rank) != nullptr) {
    ZPP_ASSIGN_OR_RETURN(env->local_rank, Number(launcher.local_rank, 0, kMaxWorld));
  }
  if (Value(launcher.local_size) != nullptr) {
    ZPP_ASSIGN_OR_RETURN(env->local_size, Number(launcher.local_size, 1, kMaxWorld));
  }
  // Slurm tells the tasks of a node only in a list, but the number of nodes plainly.
  const char* nodes = Value("SLURM_STEP_NUM_NODES");
  if (launcher.local_size == nullptr && nodes != nullptr && std::string_view(nodes) == "1") {
    env->local_size = env->world;
  }
  return {};
}

std::vector<uint16_t> PortsFrom(int first) {
  std::vector<uint16_t> ports;
  for (int port = first; port < first + kPortsTried && port <= 65535; ++port) {
    ports.push_back(static_cast<uint16_t>(port));
  }
  return ports;
}

Status ReadMaster(LaunchEnv* env) {
  const bool has_host = Value("MASTER_ADDR") != nullptr;
  if (!has_host || Value("MASTER_PORT") == nullptr) {
    return InvalidArgument(std::string(has_host ? "MASTER_ADDR" : "MASTER_PORT") + " is set, but " +
                           (has_host ? "MASTER_PORT" : "MASTER_ADDR") + " is not");
  }
  ZPP_ASSIGN_OR_RETURN(const int port, Number("MASTER_PORT", 1, 65535));
  env->host = Value("MASTER_ADDR");
  // Under torchrun the port itself belongs to the agent's store.
  const char* agent = Value("TORCHELASTIC_USE_AGENT_STORE");
  env->ports = PortsFrom(agent != nullptr && std::string_view(agent) == "True" ? port + 1 : port);
  return {};
}

Status ReadMeetingPlace(const Launcher& launcher, LaunchEnv* env) {
  if (EnvIsSet(EnvVar::kCommId)) {
    ZPP_ASSIGN_OR_RETURN(auto where, internal::ParseHostPort(GetEnv(EnvVar::kCommId)));
    env->host = std::move(where.host);
    env->ports = {where.port};
    return {};
  }
  if (Value("MASTER_ADDR") != nullptr || Value("MASTER_PORT") != nullptr) return ReadMaster(env);
  bool has_job = EnvIsSet(EnvVar::kJobId);
  for (const char* name : launcher.job) has_job = has_job || Value(name) != nullptr;
  if (launcher.name != std::string_view("torchrun") && has_job && env->local_size == env->world) {
    env->host = "127.0.0.1";
    env->ports = PortsFrom(20000 + static_cast<int>(env->job % 12000));
    return {};
  }
  return InvalidArgument(
      std::string("where rank 0 listens is not known: set MASTER_ADDR and MASTER_PORT, or "
                  "ZPP_COMM_ID=host:port (ranks of ") +
      launcher.name + ")");
}

}  // namespace

Result<LaunchEnv> ReadLaunchEnv() {
  const Launcher* launcher = FindLauncher();
  if (launcher == nullptr) {
    ZPP_RETURN_IF_ERROR(PmixAlone());
    return Status(StatusCode::kNotFound,
                  "no launcher's variables are set: start the ranks with torchrun, mpirun or srun, "
                  "or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
  }
  ZPP_RETURN_IF_ERROR(GetEnvInteger(EnvVar::kJobId, 0, INT64_MAX).status());
  LaunchEnv env;
  env.launcher = launcher->name;
  ZPP_RETURN_IF_ERROR(ReadRanks(*launcher, &env));
  env.job = JobOf(*launcher);
  if (env.world == 1) return env;
  ZPP_RETURN_IF_ERROR(ReadMeetingPlace(*launcher, &env));
  // Two jobs whose ports overlap must not meet each other.
  Mix(&env.job, std::to_string(env.ports.front()));
  return env;
}

}  // namespace zpp
