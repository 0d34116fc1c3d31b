// The program as its users run it: real processes over UCX, exit codes, what is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::set<std::string> SharedMemoryFiles() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.rfind("zpp-", 0) == 0 || name.rfind("ucx_", 0) == 0) names.insert(name);
  }
  return names;
}

struct Ran {
  int code = -1;
  std::string out, err;
};

class ZppProgram : public testing::Test {
 protected:
  ZppProgram() : folder_(testing::TempDir() + "zpp" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~ZppProgram() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  // `environment` goes before the program: "RANK=0 ".
  Ran Run(const std::string& args, const std::string& environment = "") const {
    const std::string command = environment + " timeout 100 " ZPP_PROGRAM " " + args + " >" +
                                Path("out") + " 2>" + Path("err");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, ReadFile(Path("out")),
            ReadFile(Path("err"))};
  }

  // Started in the background, to be signalled.
  pid_t Start(const std::vector<std::string>& args) const {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    std::freopen(Path("out").c_str(), "w", stdout);
    std::freopen(Path("err").c_str(), "w", stderr);
    std::vector<char*> argv = {const_cast<char*>("zpp")};
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    execv(ZPP_PROGRAM, argv.data());
    _exit(127);
  }

  // Until rank 0 has printed the table's head: all ranks are connected by then.
  bool WaitForHead(const char* file = "out") const {
    for (int i = 0; i < 1000; ++i) {
      if (ReadFile(Path(file)).find("elements") != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

  std::string folder_;
};

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

TEST_F(ZppProgram, BadInputIsOneSentenceAndExitCodeTwo) {
  std::ofstream(Path("lying.safetensors")) << "\xff\xff\xff\xff\xff\xff\xff\x7f{}";
  const std::vector<std::string> bad = {
      "",
      "--no-such-flag",
      "nonsense",
      "bw",
      "bw all_gather --no-such-flag",
      "bw all_gather extra",
      "bw gather",
      "bw all_gather --ranks",
      "bw all_gather --ranks x",
      "bw all_gather --ranks 2 --nodes 3",
      "bw all_gather --ranks 99999999999999999999",
      "bw all_gather -s 99999999999999G",
      "bw all_gather --inter-gbits nan",
      "bw all_gather --inter-gbits inf",
      "bw all_gather -D nan",
      "bw all_gather -n 0",
      "bw all_gather --threads 65",
      "bw all_gather -n 1.5",
      "bw all_gather --block 7",
      "bw all_gather -d int8",
      "bw all_gather --data /no/such/file",
      "bw all_gather --data " + Path("lying.safetensors"),
      "bw all_gather --json /no/such/folder/file",
      "bw broadcast --inter int8",
  };
  for (const std::string& args : bad) {
    const Ran ran = Run(args);
    EXPECT_EQ(ran.code, 2) << args << ran.err;
    EXPECT_THAT(ran.err, testing::StartsWith("zpp: ")) << args;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << args << ran.err;
    EXPECT_EQ(ran.out, "") << args;
  }
}

TEST_F(ZppProgram, BadInputOnTheWayToAReaderIsStillJson) {
  const Ran ran = Run("bw all_gather -s 1X --json -");
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(json::parse(ran.out)["error"], HasSubstr("1X"));
}

TEST_F(ZppProgram, HalfSetLauncherVariablesAreNamed) {
  const Ran ran = Run("bw all_gather -s 1K -n 1", "RANK=0");
  EXPECT_EQ(ran.code, 2) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("WORLD_SIZE"));
}

TEST_F(ZppProgram, RanksUnderALauncherAreRefused) {
  const std::pair<const char*, const char*> launchers[] = {
      {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29555", "torchrun"},
      {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29555",
       "Open MPI"}};
  for (const auto& [environment, name] : launchers) {
    const Ran ran = Run("bw all_reduce --ranks 4 -s 1M", environment);
    EXPECT_EQ(ran.code, 2) << name;
    EXPECT_THAT(ran.err, HasSubstr("already rank 1 of 2 (" + std::string(name) + ")"));
    EXPECT_THAT(ran.out, testing::IsEmpty());
  }
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

TEST_F(ZppProgram, AFailedRunLeavesAnEarlierReportReadable) {
  std::ofstream(Path("json")) << "{\"earlier\": true}";
  const Ran ran = Run("bw all_gather -s 1K -d fp99 --json " + Path("json"));
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ReadFile(Path("json")), "{\"earlier\": true}");
}

}  // namespace
