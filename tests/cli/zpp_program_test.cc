// Real processes over UCX: what is measured, exit codes, what is left behind.
#include "tests/cli/program.h"

namespace zpp::test {
namespace {

using testing::HasSubstr;

TEST_F(ZppProgram, EveryCollectiveRunsAndIsRight) {
  for (const char* collective :
       {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast"}) {
    const Ran ran = Run(std::string("bw ") + collective +
                        " --ranks 4 -b 1K -e 256K -f 16 -n 3 -w 1 --json " + Path("json"));
    EXPECT_EQ(ran.code, 0) << collective << ran.out << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("# Out of bounds values : 0 OK"));
    const json report = json::parse(ReadFile(Path("json")));
    EXPECT_EQ(report["collective"], collective);
    EXPECT_EQ(report["nodes"], 2);
    EXPECT_EQ(report["results"].size(), 3u);
  }
}

TEST_F(ZppProgram, OneRankThreeRanksAndUnevenNodes) {
  for (const char* ranks : {"--ranks 1", "--ranks 2", "--ranks 3", "--ranks 5 --nodes 3"}) {
    const Ran ran = Run(std::string("bw all_reduce -s 100K -n 2 -w 1 ") + ranks);
    EXPECT_EQ(ran.code, 0) << ranks << ran.out << ran.err;
  }
}

TEST_F(ZppProgram, JsonOnStandardOutputIsAlone) {
  const Ran ran = Run("bw all_gather --ranks 2 -s 64K -n 2 --json -");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(json::parse(ran.out)["ranks"], 2);
  EXPECT_THAT(ran.err, HasSubstr("Collective test concluded"));
}

TEST_F(ZppProgram, CodecRowsAsJson) {
  const Ran ran = Run("bw codec -s 64K -d fp32 -D 0.002 --all-targets --json -");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json report = json::parse(ran.out);
  EXPECT_EQ(report["collective"], "codec");
  ASSERT_FALSE(report["results"].empty());
  for (const json& row : report["results"]) {
    for (const char* key : {"op", "format", "code", "rounding", "dtype", "block", "count", "target",
                            "GBps", "ratio", "of_roof", "rel_error"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
    EXPECT_EQ(row["count"], 16384);
    EXPECT_GT(row["GBps"], 0);
  }
}

TEST_F(ZppProgram, ExplainPrintsThePlan) {
  const Ran ran = Run("bw reduce_scatter --ranks 4 -s 64K -n 1 --explain");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("stage"));
}

TEST_F(ZppProgram, DataFileIsSentAsItIs) {
  std::ofstream file(Path("data.raw"), std::ios::binary);
  for (int i = 0; i < 5000; ++i) {
    const float x = static_cast<float>(i % 100) - 50;
    file.write(reinterpret_cast<const char*>(&x), 4);
  }
  file.close();
  const Ran ran = Run("bw reduce_scatter --ranks 2 -n 2 --json - --data " + Path("data.raw"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(json::parse(ran.out)["results"][0]["count"], 5000);
}

TEST_F(ZppProgram, ThrottledLinkIsNoFasterThanAsked) {
  const Ran ran = Run("bw all_gather --ranks 2 -s 8M -n 3 -w 1 --inter-gbits 1 --json -");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json row = json::parse(ran.out)["results"][0];
  // Half of what crosses goes in each direction. How much slower it is depends on the machine.
  for (const char* run : {"baseline", "compressed"}) {
    const double wire_bytes = row[run]["wire_bytes"]["inter"];
    EXPECT_GT(wire_bytes, 0) << run;
    EXPECT_GT(row[run]["time_us"], 0.9 * wire_bytes / 2 * 8 / 1e9 * 1e6) << run;
  }
  EXPECT_GT(row["baseline"]["wire_bytes"]["inter"],
            3.8 * row["compressed"]["wire_bytes"]["inter"].get<double>());
}

TEST_F(ZppProgram, ARankThatNeverComesIsNamed) {
  const Ran ran = Run("bw all_gather -s 1K -n 1 --timeout 1 --json " + Path("json"),
                      "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29777");
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("rank 1 never came"));
  EXPECT_TRUE(json::parse(ReadFile(Path("json"))).contains("error"));
}

TEST_F(ZppProgram, ASignalEndsARunWithItsJsonWhole) {
  const std::set<std::string> before = SharedMemoryFiles();
  for (const int number : {SIGINT, SIGTERM}) {
    std::filesystem::remove(Path("out"));
    const pid_t pid = Start({"bw", "all_reduce", "--ranks", "3", "-b", "4K", "-e", "4M", "-D", "30",
                             "--json", Path("json")});
    ASSERT_TRUE(WaitForHead());
    kill(pid, number);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(WEXITSTATUS(status), 128 + number);
    EXPECT_TRUE(json::parse(ReadFile(Path("json"))).contains("error"));
    std::filesystem::remove(Path("json"));
  }
  EXPECT_EQ(SharedMemoryFiles(), before);
}

// The pids of the ranks stand in the table's head.
std::vector<pid_t> RanksIn(const std::string& head) {
  std::vector<pid_t> pids;
  std::istringstream words(head);
  for (std::string word; words >> word;) {
    if (word != "Pid") continue;
    words >> word;
    pids.push_back(std::stoi(word));
  }
  return pids;
}

TEST_F(ZppProgram, ARankThatDiesEndsTheRunAndIsNamed) {
  const std::set<std::string> before = SharedMemoryFiles();
  for (const int victim : {0, 1, 2}) {
    std::filesystem::remove(Path("out"));
    const pid_t pid = Start({"bw", "all_reduce", "--ranks", "3", "-b", "4K", "-e", "4M", "-D", "30",
                             "--timeout", "5", "--json", Path("json")});
    ASSERT_TRUE(WaitForHead());
    const std::vector<pid_t> ranks = RanksIn(ReadFile(Path("out")));
    ASSERT_EQ(ranks.size(), 3u);
    kill(ranks[victim], SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_NE(WEXITSTATUS(status), 0);
    EXPECT_THAT(ReadFile(Path("err")), HasSubstr("rank " + std::to_string(victim)));
    for (const pid_t rank : ranks) EXPECT_EQ(kill(rank, 0), -1) << rank;
    if (victim != 0) {
      const std::string error = json::parse(ReadFile(Path("json")))["error"];
      EXPECT_THAT(error, HasSubstr(std::to_string(victim)));
    }
    std::filesystem::remove(Path("json"));
  }
  EXPECT_EQ(SharedMemoryFiles(), before);
}

}  // namespace
}  // namespace zpp::test
