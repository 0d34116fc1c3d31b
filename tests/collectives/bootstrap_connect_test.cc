// From variables, an id or a callback to a communicator that sums right; and what is said when that
// cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <numeric>
#include <set>
#include <vector>

#include "collectives/connect.h"
#include "common/env.h"
#include "tests/collectives/process_world.h"
#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

using testing::HasSubstr;

void SetTorchrun(int rank, int world, int port) {
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(world).c_str(), 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
}

int TestPort() { return TestRendezvous(0, 1).ports.front(); }

// Each rank gives rank + 1 in every element; all get the sum.
Status CheckSum(Communicator& comm) {
  std::vector<float> data(1000, static_cast<float>(comm.rank() + 1));
  const int64_t elems = static_cast<int64_t>(data.size());
  ZPP_RETURN_IF_ERROR(
      comm.AllReduce({DType::kF32, data.data(), elems}, {DType::kF32, data.data(), elems}));
  const float due = static_cast<float>(comm.world() * (comm.world() + 1)) / 2;
  for (const float value : data) ZPP_REQUIRE(value == due);
  return {};
}

Result<std::string> SumAndLeave(Result<std::unique_ptr<Communicator>> comm) {
  if (!comm.ok()) return comm.status();
  ZPP_RETURN_IF_ERROR(CheckSum(**comm));
  const std::string name = (*comm)->transport().info().name;
  ZPP_RETURN_IF_ERROR((*comm)->Shutdown(Deadline::In(20)));
  return name;
}

TEST(Connect, FromTorchrunsVariablesOverSharedMemory) {
  const auto outcomes = RunProcesses(4, 60, [](int rank) {
    SetTorchrun(rank, 4, TestPort());
    return SumAndLeave(ConnectFromEnv());
  });
  ASSERT_TRUE(AllOk(outcomes));
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_THAT(outcome.value, HasSubstr("node: posix+window"));
    EXPECT_THAT(outcome.value, testing::Not(HasSubstr("tcp")));
  }
}

TEST(Connect, DeclaredNodesOfOneHostTalkOverTcp) {
  const auto outcomes = RunProcesses(4, 60, [](int rank) {
    SetTorchrun(rank, 4, TestPort());
    ConnectOptions options;
    options.nodes = 2;
    return SumAndLeave(ConnectFromEnv(options));
  });
  ASSERT_TRUE(AllOk(outcomes));
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_THAT(outcome.value, HasSubstr("node: posix+window, across: tcp"));
  }
}

TEST(Connect, AWorldOfOneNeedsNoNetwork) {
  const auto outcomes = RunProcesses(1, 60, [](int) {
    ::setenv("RANK", "0", 1);
    ::setenv("WORLD_SIZE", "1", 1);
    return SumAndLeave(ConnectFromEnv());
  });
  EXPECT_TRUE(AllOk(outcomes));
}

// Rank 0 makes something and leaves it in a file that the others wait for.
class Board {
 public:
  Board() : path_(testing::TempDir() + "zpp_board_" + std::to_string(::getpid())) {}
  ~Board() { std::remove(path_.c_str()); }
  void Put(const std::string& text) const {
    std::ofstream(path_ + ".new", std::ios::binary) << text;
    std::rename((path_ + ".new").c_str(), path_.c_str());
  }
  std::string Get() const {
    for (const Deadline deadline = Deadline::In(20); !deadline.expired(); ::usleep(1000)) {
      std::ifstream file(path_, std::ios::binary);
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      if (!text.empty()) return text;
    }
    return {};
  }

 private:
  std::string path_;
};

TEST(Connect, WithAnIdThatTheApplicationCarries) {
  const Board board;
  const auto outcomes = RunProcesses(3, 60, [&](int rank) -> Result<std::string> {
    ::setenv("ZPP_SOCKET_IFNAME", "lo", 1);
    UniqueId id;
    if (rank == 0) {
      ZPP_ASSIGN_OR_RETURN(id, MakeUniqueId());
      board.Put({id.bytes.begin(), id.bytes.end()});
    } else {
      const std::string text = board.Get();
      ZPP_REQUIRE(text.size() == id.bytes.size());
      std::copy(text.begin(), text.end(), id.bytes.begin());
    }
    return SumAndLeave(ConnectWithId(id, 3, rank));
  });
  EXPECT_TRUE(AllOk(outcomes));
}

TEST(Connect, WithTheApplicationsOwnGather) {
  const Board board;
  const auto outcomes = RunProcesses(3, 60, [&](int rank) {
    ::setenv("ZPP_SOCKET_IFNAME", "lo", 1);
    const GatherCallback gather = [&](const std::string& mine) -> Result<std::vector<std::string>> {
      if (rank == 0) board.Put(mine);
      return std::vector<std::string>{board.Get(), "", ""};
    };
    return SumAndLeave(ConnectWithCallback(gather, 3, rank));
  });
  EXPECT_TRUE(AllOk(outcomes));
}

TEST(Connect, BadIdsAreRefused) {
  UniqueId id;
  EXPECT_EQ(ConnectWithId(id, 2, 0).status().code(), StatusCode::kDataLoss);
  for (size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<char>(0xff);
  EXPECT_EQ(ConnectWithId(id, 2, 1).status().code(), StatusCode::kDataLoss);
  const auto good = MakeUniqueId();
  ASSERT_TRUE(good.ok()) << good.status().ToString();
  EXPECT_EQ(ConnectWithId(*good, 2, 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ConnectWithId(*good, 0, 0).status().code(), StatusCode::kInvalidArgument);
}

// The listener belongs to the process that made the id; a copy of the id elsewhere cannot be rank
// 0.
TEST(Connect, OnlyTheMakerOfAnIdIsRankZero) {
  const auto id = MakeUniqueId();
  ASSERT_TRUE(id.ok());
  const auto outcomes = RunProcesses(
      1, 30, [&](int) -> Result<std::string> { return ConnectWithId(*id, 2, 0).status(); });
  EXPECT_THAT(outcomes[0].status.message(), HasSubstr("must be the process that made"));
}

TEST(Connect, TwoCommunicatorsInOneProcess) {
  const auto outcomes = RunProcesses(2, 60, [](int rank) -> Result<std::string> {
    SetTorchrun(rank, 2, TestPort());
    ZPP_ASSIGN_OR_RETURN(auto first, ConnectFromEnv());
    ZPP_ASSIGN_OR_RETURN(auto second, ConnectFromEnv());
    for (int round = 0; round < 3; ++round) {
      ZPP_RETURN_IF_ERROR(CheckSum(*first));
      ZPP_RETURN_IF_ERROR(CheckSum(*second));
    }
    ZPP_RETURN_IF_ERROR(first->Shutdown(Deadline::In(20)));
    ZPP_RETURN_IF_ERROR(CheckSum(*second));
    ZPP_RETURN_IF_ERROR(second->Shutdown(Deadline::In(20)));
    return std::string();
  });
  EXPECT_TRUE(AllOk(outcomes));
}

TEST(Connect, RanksThatDisagreeAreNamedOnEveryRank) {
  const auto outcomes = RunProcesses(3, 60, [](int rank) -> Result<std::string> {
    SetTorchrun(rank, 3, TestPort());
    ConnectOptions options;
    options.communicator.chunk_bytes = rank == 2 ? 8192 : 4096;
    return ConnectFromEnv(options).status();
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status.code(), StatusCode::kMismatch) << outcome.ToString();
    EXPECT_THAT(outcome.status.message(),
                HasSubstr("rank 2 differs from rank 0 in chunk_bytes ('8192' against '4096')"));
  }
}

TEST(Connect, TopologiesThatDisagreeAreNamed) {
  const auto outcomes = RunProcesses(4, 60, [](int rank) -> Result<std::string> {
    SetTorchrun(rank, 4, TestPort());
    ConnectOptions options;
    options.nodes = rank == 1 ? 4 : 2;
    return ConnectFromEnv(options).status();
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status.code(), StatusCode::kMismatch) << outcome.ToString();
    EXPECT_THAT(outcome.status.message(), HasSubstr("rank 1 differs from rank 0 in the topology"));
  }
}

TEST(Connect, ARankThatCannotGoOnTellsTheOthers) {
  const auto outcomes = RunProcesses(3, 60, [](int rank) -> Result<std::string> {
    SetTorchrun(rank, 3, TestPort());
    if (rank == 1) ::setenv("ZPP_TOPOLOGY", "/nonexistent.json", 1);
    return ConnectFromEnv().status();
  });
  EXPECT_EQ(outcomes[1].status.code(), StatusCode::kNotFound) << outcomes[1].ToString();
  for (const int rank : {0, 2}) {
    EXPECT_EQ(outcomes[static_cast<size_t>(rank)].status.code(), StatusCode::kAborted);
    EXPECT_THAT(outcomes[static_cast<size_t>(rank)].status.message(),
                HasSubstr("rank 1 aborted: the topology file: cannot open '/nonexistent.json'"));
  }
}

// What `zpp env` prints as a variable's values is what is accepted.
TEST(Connect, ChunkBytesOfTheEnvironmentAreZeroOrInRange) {
  const auto connect_with = [](const char* value) {
    ::setenv("ZPP_CHUNK_BYTES", value, 1);
    ConnectOptions options;
    options.communicator.chunk_bytes = 1 << 20;
    auto made = ConnectInProcess(1, options);
    ::unsetenv("ZPP_CHUNK_BYTES");
    if (!made.ok()) return made.status().message();
    return std::to_string(made->front()->options().chunk_bytes);
  };
  EXPECT_EQ(connect_with("0"), "0");
  EXPECT_EQ(connect_with("4096"), "4096");
  EXPECT_EQ(connect_with("4095"), "ZPP_CHUNK_BYTES='4095': expected 0 | 4096 to 1073741824");
  EXPECT_THAT(connect_with("-1"), HasSubstr("expected 0 | 4096 to"));
}

// A launcher asks before it starts ranks, so that a mistake is said once: of every variable that
// connecting reads.
TEST(Connect, EveryBadVariableIsFoundBeforeRanksAreStarted) {
  EXPECT_TRUE(CheckEnvironment(4).ok()) << CheckEnvironment(4).ToString();
  // Any text is good for these, or no harm; the launcher sets the address of its ranks itself.
  const std::set<EnvVar> free = {EnvVar::kLog, EnvVar::kCommId, EnvVar::kNodeId, EnvVar::kTarget};
  for (const EnvInfo& info : EnvTable()) {
    if (free.contains(info.var)) continue;
    const std::string name(info.name);
    ::setenv(name.c_str(), "/no-such", 1);
    const Status status = CheckEnvironment(4);
    ::unsetenv(name.c_str());
    EXPECT_EQ(RemedyFor(status.code()), Remedy::kFixArgument) << name << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("/no-such")) << name;
  }
  EXPECT_FALSE(CheckEnvironment(0).ok());
}

// The declarations that `zpp topo` shows are those that ranks connect with.
TEST(Connect, LocalSizeDeclaresNodesAndExplicitOnesComeFirst) {
  ::setenv("ZPP_LOCAL_SIZE", "2", 1);
  const auto found = ConnectInProcess(5);
  ConnectOptions flat, five_nodes;
  flat.topology = Topology::Flat(5);
  five_nodes.nodes = 5;
  const auto asked = ConnectInProcess(5, flat);
  ::unsetenv("ZPP_LOCAL_SIZE");
  ASSERT_TRUE(found.ok() && asked.ok());
  EXPECT_EQ(found->front()->topology(), *Topology::Nodes(std::vector<int>{2, 2, 1}));
  EXPECT_EQ(asked->front()->topology(), Topology::Flat(5));
  EXPECT_THAT(ConnectInProcess(4, flat).status().message(),
              HasSubstr("has 5 ranks, this job has 4"));
  EXPECT_EQ(ConnectInProcess(4, five_nodes).status().code(), StatusCode::kInvalidArgument);
}

TEST(Connect, BoundsThatDifferInTheLastDigitDisagree) {
  const auto outcomes = RunProcesses(2, 60, [](int rank) -> Result<std::string> {
    SetTorchrun(rank, 2, TestPort());
    ConnectOptions options;
    options.communicator.policy.max_rel_error = rank == 0 ? 1e-9 : 2e-9;
    return ConnectFromEnv(options).status();
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status.code(), StatusCode::kMismatch) << outcome.ToString();
    EXPECT_THAT(outcome.status.message(), HasSubstr("the policy"));
  }
}

TEST(Connect, WorldsThatDisagreeAreNamed) {
  const auto outcomes = RunProcesses(3, 60, [](int rank) -> Result<std::string> {
    SetTorchrun(rank, rank == 2 ? 4 : 3, TestPort());
    if (rank == 1) ::usleep(300'000);  // after the others have met
    return ConnectFromEnv().status();
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status.code(), StatusCode::kMismatch) << outcome.ToString();
    EXPECT_THAT(outcome.status.message(), HasSubstr("rank 2 was started for a world of 4"));
  }
}

// Fails for everyone, and a new communicator follows in the same processes.
TEST(Connect, AgainAfterAFailure) {
  const auto outcomes = RunProcesses(3, 60, [](int rank) -> Result<std::string> {
    SetTorchrun(rank, 3, TestPort());
    ConnectOptions options;
    options.nodes = 3;
    for (int generation = 0; generation < 3; ++generation) {
      ZPP_ASSIGN_OR_RETURN(auto comm, ConnectFromEnv(options));
      Status failed;
      for (int round = 0; failed.ok(); ++round) {
        if (rank == 1 && round == 2) comm->Abort(InvalidArgument("on purpose"));
        failed = CheckSum(*comm);
      }
      ZPP_REQUIRE_MSG(failed.message().find("on purpose") != std::string::npos, failed.ToString());
    }
    return SumAndLeave(ConnectFromEnv(options));
  });
  EXPECT_TRUE(AllOk(outcomes));
}

}  // namespace
}  // namespace zpp::test
