// Every launcher's variables, whole, half and wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "collectives/bootstrap/internal/socket.h"
#include "collectives/bootstrap/launch_env.h"

namespace zpp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

// All that ReadLaunchEnv may look at.
constexpr const char* kAll[] = {"RANK",
                                "WORLD_SIZE",
                                "LOCAL_RANK",
                                "LOCAL_WORLD_SIZE",
                                "TORCHELASTIC_RUN_ID",
                                "TORCHELASTIC_RESTART_COUNT",
                                "TORCHELASTIC_USE_AGENT_STORE",
                                "OMPI_COMM_WORLD_RANK",
                                "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_RANK",
                                "OMPI_COMM_WORLD_LOCAL_SIZE",
                                "OMPI_MCA_orte_hnp_uri",
                                "PMIX_NAMESPACE",
                                "PMIX_RANK",
                                "PMI_RANK",
                                "PMI_SIZE",
                                "PMI_JOBID",
                                "MPI_LOCALRANKID",
                                "MPI_LOCALNRANKS",
                                "MV2_COMM_WORLD_RANK",
                                "MV2_COMM_WORLD_SIZE",
                                "MV2_COMM_WORLD_LOCAL_RANK",
                                "MV2_COMM_WORLD_LOCAL_SIZE",
                                "MPISPAWN_ID",
                                "MPIRUN_ID",
                                "SLURM_PROCID",
                                "SLURM_NTASKS",
                                "SLURM_STEP_NUM_TASKS",
                                "SLURM_STEP_NUM_NODES",
                                "SLURM_LOCALID",
                                "SLURM_JOB_ID",
                                "SLURM_STEP_ID",
                                "SLURM_RESTART_COUNT",
                                "MASTER_ADDR",
                                "MASTER_PORT",
                                "ZPP_COMM_ID",
                                "ZPP_JOB_ID"};

Result<LaunchEnv> Read(const Variables& variables) {
  for (const char* name : kAll) ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  auto env = ReadLaunchEnv();
  for (const char* name : kAll) ::unsetenv(name);
  return env;
}

Variables With(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

const Variables kMaster = {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
const Variables kTorchrun = With(kMaster, {{"RANK", "3"}, {"WORLD_SIZE", "8"}});

struct Whole {
  const char* launcher;
  Variables variables;
};

TEST(LaunchEnv, EveryLauncherTellsRankAndWorld) {
  const Whole cases[] = {
      {"torchrun", {{"RANK", "3"}, {"WORLD_SIZE", "8"}}},
      {"Open MPI", {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}}},
      {"PMI", {{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}}},
      {"MVAPICH", {{"MV2_COMM_WORLD_RANK", "3"}, {"MV2_COMM_WORLD_SIZE", "8"}}},
      {"Slurm", {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}}},
      {"Slurm", {{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_NTASKS", "16"}}},
  };
  for (const Whole& one : cases) {
    const auto env = Read(With(one.variables, kMaster));
    ASSERT_TRUE(env.ok()) << one.launcher << ": " << env.status().ToString();
    EXPECT_EQ(env->launcher, one.launcher);
    EXPECT_EQ(env->rank, 3);
    EXPECT_EQ(env->world, 8);
    EXPECT_EQ(env->host, "node1");
    EXPECT_EQ(env->ports.front(), 29500);
    EXPECT_FALSE(env->local_size.has_value());
  }
}

TEST(LaunchEnv, TorchrunComesFirst) {
  const auto env =
      Read(With(kTorchrun, {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}));
  ASSERT_TRUE(env.ok());
  EXPECT_EQ(env->launcher, "torchrun");
  EXPECT_EQ(env->rank, 3);
}

TEST(LaunchEnv, LocalRanks) {
  const auto env = Read(With(kTorchrun, {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}));
  ASSERT_TRUE(env.ok());
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->local_size, 2);
}

struct Bad {
  Variables variables;
  const char* message;
};

TEST(LaunchEnv, HalvesAndNonsenseAreNamed) {
  const Bad cases[] = {
      {{{"RANK", "0"}}, "RANK is set, but WORLD_SIZE is not (variables of torchrun)"},
      {{{"WORLD_SIZE", "2"}}, "WORLD_SIZE is set, but RANK is not"},
      {{{"RANK", "0"}, {"WORLD_SIZE", ""}}, "RANK is set, but WORLD_SIZE is not"},
      {{{"OMPI_COMM_WORLD_SIZE", "2"}},
       "OMPI_COMM_WORLD_SIZE is set, but OMPI_COMM_WORLD_RANK is not"},
      {{{"PMI_RANK", "2"}}, "PMI_RANK is set, but PMI_SIZE is not"},
      {{{"MV2_COMM_WORLD_RANK", "2"}}, "MV2_COMM_WORLD_SIZE is not"},
      {{{"SLURM_PROCID", "2"}}, "SLURM_PROCID is set, but SLURM_NTASKS is not"},
      {{{"PMIX_RANK", "2"}}, "PMIx does not tell the number of ranks"},
      {With(kTorchrun, {{"RANK", "8"}}), "RANK=8 is not below WORLD_SIZE=8"},
      {With(kTorchrun, {{"RANK", "-1"}}), "RANK='-1' is not a number"},
      {With(kTorchrun, {{"RANK", "1x"}}), "RANK='1x' is not a number"},
      {With(kTorchrun, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE='0' is not a number of 1"},
      {With(kTorchrun, {{"WORLD_SIZE", "99999999999999999999"}}), "WORLD_SIZE='999"},
      {With(kTorchrun, {{"LOCAL_RANK", "one"}}), "LOCAL_RANK='one'"},
      {With(kTorchrun, {{"MASTER_PORT", "0"}}), "MASTER_PORT='0'"},
      {With(kTorchrun, {{"MASTER_PORT", "65536"}}), "MASTER_PORT='65536'"},
      {With(kTorchrun, {{"MASTER_PORT", ""}}), "MASTER_ADDR is set, but MASTER_PORT is not"},
      {With(kTorchrun, {{"MASTER_ADDR", ""}}), "MASTER_PORT is set, but MASTER_ADDR is not"},
      {With(kTorchrun, {{"MASTER_ADDR", ""}, {"MASTER_PORT", ""}}),
       "set MASTER_ADDR and MASTER_PORT"},
      {With(kTorchrun, {{"ZPP_COMM_ID", "node1"}}), "'node1' is not host:port"},
      {With(kTorchrun, {{"ZPP_JOB_ID", "-5"}}), "ZPP_JOB_ID='-5'"},
  };
  for (const Bad& one : cases) {
    const auto env = Read(one.variables);
    ASSERT_FALSE(env.ok()) << one.message;
    EXPECT_EQ(env.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(env.status().message(), HasSubstr(one.message));
  }
}

TEST(LaunchEnv, NothingSetIsNotFound) {
  EXPECT_EQ(Read({}).status().code(), StatusCode::kNotFound);
  // A batch script's allowance of tasks is no start of ranks.
  EXPECT_EQ(Read({{"SLURM_NTASKS", "4"}}).status().code(), StatusCode::kNotFound);
}

TEST(LaunchEnv, AWorldOfOneNeedsNoMeetingPlace) {
  const auto env = Read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(env.ok()) << env.status().ToString();
  EXPECT_TRUE(env->host.empty());
}

TEST(LaunchEnv, ThePortsThatRankZeroMayTake) {
  EXPECT_THAT(Read(kTorchrun)->ports,
              ElementsAre(29500, 29501, 29502, 29503, 29504, 29505, 29506, 29507));
  // torchrun's agent keeps its store at the first.
  EXPECT_EQ(Read(With(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}))->ports.front(),
            29501);
  EXPECT_THAT(Read(With(kTorchrun, {{"MASTER_PORT", "65534"}}))->ports, ElementsAre(65534, 65535));
  const auto env = Read(With(kTorchrun, {{"ZPP_COMM_ID", "[::1]:7000"}}));
  EXPECT_EQ(env->host, "::1");
  EXPECT_THAT(env->ports, ElementsAre(7000));
}

TEST(LaunchEnv, OnOneHostTheJobItselfIsAMeetingPlace) {
  const Variables one_host = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_NAMESPACE", "12345"}};
  const auto env = Read(one_host);
  ASSERT_TRUE(env.ok()) << env.status().ToString();
  EXPECT_EQ(env->host, "127.0.0.1");
  EXPECT_EQ(Read(one_host)->ports, env->ports);
  EXPECT_NE(Read(With(one_host, {{"PMIX_NAMESPACE", "12346"}}))->job, env->job);
  // Several hosts: loopback would be a lie.
  EXPECT_THAT(Read(With(one_host, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}})).status().message(),
              HasSubstr("set MASTER_ADDR and MASTER_PORT"));
}

TEST(LaunchEnv, AnotherStartIsAnotherJob) {
  const uint64_t job = Read(kTorchrun)->job;
  EXPECT_EQ(Read(With(kTorchrun, {{"RANK", "0"}, {"LOCAL_RANK", "0"}}))->job, job);
  EXPECT_NE(Read(With(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}}))->job, job);
  EXPECT_NE(Read(With(kTorchrun, {{"TORCHELASTIC_RUN_ID", "a"}}))->job, job);
  EXPECT_NE(Read(With(kTorchrun, {{"ZPP_JOB_ID", "1"}}))->job, job);
  EXPECT_NE(Read(With(kTorchrun, {{"MASTER_PORT", "29501"}}))->job, job);
}

TEST(HostPort, ParsesAndRefuses) {
  using internal::ParseHostPort;
  EXPECT_EQ(ParseHostPort("a:1")->host, "a");
  EXPECT_EQ(ParseHostPort("[fe80::1]:65535")->port, 65535);
  EXPECT_EQ(ToString(*ParseHostPort("[::1]:9")), "[::1]:9");
  for (const char* bad :
       {"", ":", "a", "a:", ":1", "a:0", "a:65536", "a:-1", "a:1 ", "::1:9", "[]:9", "a:1x"}) {
    EXPECT_FALSE(ParseHostPort(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace zpp
