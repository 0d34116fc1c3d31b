#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/run_cli.h"
#include "common/env.h"
#include "topology/topology.h"

namespace zpp::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Outcome {
  int exit_code;
  std::string out, err;
};

Outcome RunZpp(std::vector<const char*> args) {
  args.insert(args.begin(), "zpp");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int exit_code = RunCli(static_cast<int>(args.size()), args.data());
  std::fflush(stdout);
  return {exit_code, ::testing::internal::GetCapturedStdout(),
          ::testing::internal::GetCapturedStderr()};
}

class TopoEnvCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const EnvInfo& info : EnvTable()) unsetenv(std::string(info.name).c_str());
  }
  void TearDown() override {
    SetUp();
    std::remove(path_.c_str());
  }
  void ExpectUsageError(const std::vector<const char*>& args, const std::string& part) {
    const Outcome run = RunZpp(args);
    EXPECT_EQ(run.exit_code, kExitUsage) << part;
    EXPECT_EQ(run.out, "") << part;
    EXPECT_THAT(run.err, StartsWith("zpp: "));
    EXPECT_THAT(run.err, HasSubstr(part));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
  const std::string path_ = ::testing::TempDir() + "zpp_topo_" + std::to_string(getpid());
};

TEST_F(TopoEnvCommand, TopoPrintsNodeAndTopology) {
  const Outcome run = RunZpp({"topo", "--ranks", "5", "--nodes", "2"});
  EXPECT_EQ(run.exit_code, kExitOk);
  EXPECT_THAT(run.out, HasSubstr("this node: boot="));
  EXPECT_THAT(run.out, HasSubstr("world: 5 ranks 0-4"));
  EXPECT_THAT(run.out, HasSubstr("node 0: 3 ranks 0-2"));
  EXPECT_THAT(run.out, HasSubstr("node 1: 2 ranks 3-4"));
  EXPECT_EQ(run.err, "");
}

TEST_F(TopoEnvCommand, TopoInventsNothing) {
  const Outcome run = RunZpp({"topo"});
  EXPECT_EQ(run.exit_code, kExitOk);
  EXPECT_THAT(run.out, HasSubstr("world: 1 rank 0"));
  EXPECT_THAT(run.out, HasSubstr("--ranks N --nodes M or --topology FILE"));
  EXPECT_THAT(run.out, Not(HasSubstr("launcher:")));
  const auto json = nlohmann::json::parse(RunZpp({"topo", "--json", "-"}).out);
  EXPECT_EQ(*Topology::FromJson(json["topology"].dump()), Topology::Flat(1));
  EXPECT_EQ(json["fingerprint"].get<std::string>().size(), 16u);
  EXPECT_TRUE(json["launcher"].is_null());
  // Ranks that are asked for are of this host, unless nodes are declared.
  EXPECT_THAT(RunZpp({"topo", "--ranks", "4"}).out, HasSubstr("world: 4 ranks 0-3"));
  EXPECT_THAT(RunZpp({"topo", "--ranks", "4"}).out, Not(HasSubstr("node 1")));
  setenv("ZPP_LOCAL_SIZE", "3", 1);
  EXPECT_THAT(RunZpp({"topo", "--ranks", "4"}).out, HasSubstr("node 1: 1 rank 3"));
  EXPECT_THAT(RunZpp({"topo", "--ranks", "4", "--nodes", "4"}).out, HasSubstr("node 3: 1 rank 3"));
}

TEST_F(TopoEnvCommand, TopoShowsWhatTheLauncherSays) {
  const std::vector<std::pair<const char*, const char*>> torchrun = {{"RANK", "1"},
                                                                     {"WORLD_SIZE", "4"},
                                                                     {"LOCAL_RANK", "1"},
                                                                     {"LOCAL_WORLD_SIZE", "2"},
                                                                     {"MASTER_ADDR", "localhost"},
                                                                     {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : torchrun) setenv(name, value, 1);
  const Outcome found_out_later = RunZpp({"topo"});
  const auto json = nlohmann::json::parse(RunZpp({"topo", "--json", "-"}).out);
  setenv("LOCAL_WORLD_SIZE", "4", 1);
  const Outcome one_host = RunZpp({"topo"});
  setenv("ZPP_LOCAL_SIZE", "1", 1);
  const Outcome declared = RunZpp({"topo"});
  const Outcome by_flag = RunZpp({"topo", "--nodes", "2"});
  unsetenv("WORLD_SIZE");
  const Outcome half_set = RunZpp({"topo"});
  for (const auto& [name, value] : torchrun) unsetenv(name);

  EXPECT_THAT(found_out_later.out, HasSubstr("launcher: torchrun, rank 1 of 4, local rank 1 of 2"));
  EXPECT_THAT(found_out_later.out, HasSubstr("nodes: the ranks find out when they connect"));
  EXPECT_EQ(json["launcher"]["world"], 4);
  EXPECT_TRUE(json["topology"].is_null());
  EXPECT_THAT(one_host.out, HasSubstr("world: 4 ranks 0-3"));
  EXPECT_THAT(declared.out, HasSubstr("node 3: 1 rank 3"));
  EXPECT_THAT(by_flag.out, HasSubstr("node 1: 2 ranks 2-3"));
  EXPECT_EQ(half_set.exit_code, kExitUsage);
  EXPECT_THAT(half_set.err, HasSubstr("WORLD_SIZE"));
}

// What it writes it also reads.
TEST_F(TopoEnvCommand, TopoReadsAFileAndTheVariable) {
  std::ofstream(path_) << Topology::EvenNodes(6, 3)->ToJson();
  EXPECT_THAT(RunZpp({"topo", "--topology", path_.c_str()}).out, HasSubstr("node 2: 2 ranks 4-5"));
  setenv("ZPP_TOPOLOGY", path_.c_str(), 1);
  EXPECT_THAT(RunZpp({"topo"}).out, HasSubstr("node 2: 2 ranks 4-5"));
}

TEST_F(TopoEnvCommand, TopoWritesJsonBesideTheText) {
  const Outcome run = RunZpp({"topo", "--ranks", "3", "--nodes", "1", "--json", path_.c_str()});
  EXPECT_EQ(run.exit_code, kExitOk);
  EXPECT_THAT(run.out, HasSubstr("world: 3 ranks"));
  const auto json = nlohmann::json::parse(std::ifstream(path_));
  EXPECT_EQ(*Topology::FromJson(json["topology"].dump()), Topology::Flat(3));
}

TEST_F(TopoEnvCommand, TopoRefusesBadInput) {
  ExpectUsageError({"topo", "--ranks", "4", "--nodes", "5"}, "4 ranks make 1 to 4 nodes, not 5");
  ExpectUsageError({"topo", "--nodes", "0"}, "--nodes must be at least 1, not 0");
  ExpectUsageError({"topo", "--ranks", "-2"}, "not -2");
  ExpectUsageError({"topo", "--ranks", "99999999999"}, "--ranks");
  ExpectUsageError({"topo", "--ranks", "two"}, "--ranks");
  ExpectUsageError({"topo", "--ring"}, "--ring");
  ExpectUsageError({"topo", "--nodes", "2"}, "--nodes 2 needs --ranks");
  ExpectUsageError({"topo", "--topology", "/no/such"}, "the topology file: cannot open '/no/such'");
  ExpectUsageError({"topo", "--topology", "/no/such", "--ranks", "2"}, "no --ranks or --nodes");
  std::ofstream(path_) << R"({"version":1,"world":3,"tiers":[{"domains":[[0,1]]},{}]})";
  ExpectUsageError({"topo", "--topology", path_.c_str()}, "rank 2 is missing");
}

TEST_F(TopoEnvCommand, WhatIsNoCommandIsNamed) {
  ExpectUsageError({"foo"}, "there is no command 'foo': bw, ");
  ExpectUsageError({"foo", "bw"}, "'foo'");
  ExpectUsageError({""}, "''");
  ExpectUsageError({"b\nw"}, "'b?w'");
  ExpectUsageError({}, "a command is missing: bw, ");
  ExpectUsageError({"--foo"}, "--foo");
}

TEST_F(TopoEnvCommand, TopoErrorsAreJsonToo) {
  const Outcome run = RunZpp({"topo", "--ranks", "0", "--json", "-"});
  EXPECT_EQ(run.exit_code, kExitUsage);
  EXPECT_THAT(nlohmann::json::parse(run.out)["error"].get<std::string>(), HasSubstr("not 0"));
}

TEST_F(TopoEnvCommand, EnvPrintsEveryVariable) {
  setenv("ZPP_THREADS", "3", 1);
  const Outcome run = RunZpp({"env"});
  EXPECT_EQ(run.exit_code, kExitOk);
  for (const EnvInfo& info : EnvTable()) {
    EXPECT_THAT(run.out, HasSubstr(std::string(info.name)));
    EXPECT_THAT(run.out, HasSubstr(std::string(info.meaning)));
  }
  EXPECT_THAT(run.out, ::testing::ContainsRegex("ZPP_THREADS +\\* 3 +1 "));
}

TEST_F(TopoEnvCommand, EnvAsJson) {
  setenv("ZPP_LOG", "debug\xff", 1);  // not UTF-8
  const Outcome run = RunZpp({"env", "--json", "-"});
  EXPECT_EQ(run.exit_code, kExitOk);
  const auto json = nlohmann::json::parse(run.out);
  ASSERT_EQ(json["variables"].size(), EnvTable().size());
  EXPECT_EQ(json["variables"][0]["name"], "ZPP_LOG");
  EXPECT_EQ(json["variables"][0]["set"], true);
  EXPECT_EQ(json["variables"][0]["default"], "warning");
}

}  // namespace
}  // namespace zpp::cli
