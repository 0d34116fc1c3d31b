// What the program says when its flags, its environment or its files are wrong, and who wins.
#include <sys/stat.h>

#include "tests/cli/program.h"

namespace zpp::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

int64_t Lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST_F(ZppProgram, BadInputIsOneSentenceAndExitCodeTwo) {
  std::ofstream(Path("lying.safetensors")) << "\xff\xff\xff\xff\xff\xff\xff\x7f{}";
  const std::vector<std::string> bad = {
      "",
      "--no-such-flag",
      "nonsense",
      "nonsense bw",
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
      "bw all_gather --rounding up",
      "bw all_gather -d int8",
      "bw all_gather --data /no/such/file",
      "bw all_gather --data " + Path("lying.safetensors"),
      "bw all_gather --json /no/such/folder/file",
      "bw all_gather --json /tmp",
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

TEST_F(ZppProgram, AFailedRunLeavesAnEarlierReportReadable) {
  std::ofstream(Path("json")) << "{\"earlier\": true}";
  const Ran ran = Run("bw all_gather -s 1K -d fp99 --json " + Path("json"));
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ReadFile(Path("json")), "{\"earlier\": true}");
}

// Before any rank is started: with ZPP_LOG all ranks would be heard.
TEST_F(ZppProgram, MistakesInTheEnvironmentAreSaidOnce) {
  for (const std::string log : {"", "ZPP_LOG=info "}) {
    for (const char* mistake :
         {"ZPP_TIMEOUT=x", "ZPP_THREADS=0", "ZPP_LOCAL_SIZE=x", "ZPP_TOPOLOGY=/no/such",
          "ZPP_HEARTBEAT=x", "ZPP_SOCKET_IFNAME=none", "ZPP_UCX_PROFILE=x", "ZPP_TRANSPORT=x"}) {
      const Ran ran = Run("bw all_gather --ranks 3 -s 4K -n 1", log + mistake);
      EXPECT_EQ(ran.code, 2) << mistake;
      EXPECT_EQ(Lines(ran.err), 1) << mistake << ran.err;
      const std::string name(mistake, std::string(mistake).find('='));
      // A file that is not there is named by its path.
      EXPECT_THAT(ran.err, HasSubstr(name == "ZPP_TOPOLOGY" ? "/no/such" : name));
      EXPECT_THAT(ran.out, IsEmpty()) << mistake;
    }
  }
  const Ran loud = Run("bw all_gather --ranks 3 -s 4K -n 1", "ZPP_LOG=loud");
  EXPECT_EQ(loud.code, 0);
  EXPECT_EQ(Lines(loud.err), 1) << loud.err;
}

TEST_F(ZppProgram, FlagsThatAreGivenWinOverVariables) {
  const Ran ran =
      Run("bw all_gather --ranks 2 --nodes 2 --threads 1 --chunk 64K --timeout 50 "
          "-s 4K -n 1 --json -",
          "ZPP_TIMEOUT=x ZPP_THREADS=x ZPP_CHUNK_BYTES=x ZPP_LOCAL_SIZE=x "
          "ZPP_TOPOLOGY=/no/such");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(json::parse(ran.out)["nodes"], 2);
  // Whoever waits as the variable says does not come back in the time of this test.
  const Ran alone =
      Run("bw all_gather -s 1K --timeout 1",
          "ZPP_TIMEOUT=86400 RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + Port());
  EXPECT_EQ(alone.code, 1) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("rank 1 never came"));
}

TEST_F(ZppProgram, VariablesSayWhatFlagsDoNot) {
  const Ran ran = Run("bw all_gather --ranks 3 -s 4K -n 1 --json -", "ZPP_LOCAL_SIZE=1");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(json::parse(ran.out)["nodes"], 3);
}

// Nothing but the others' word can end a rank that waits: its own time is a day.
TEST_F(ZppProgram, WhatOneRankCannotReadEndsAllRanks) {
  std::ofstream(Path("data.raw")) << std::string(4096, 'x');
  std::ofstream(Path("other.raw")) << std::string(4096, 'y');
  const std::tuple<std::string, int, std::string> cases[] = {
      {Path("none.raw"), 2, "rank 1: cannot open"},
      {Path(""), 2, "rank 1: '" + Path("") + "' is not a regular file"},
      {Path("other.raw"), 1, "rank 1's --data holds other values"},
  };
  for (const auto& [data, code, says] : cases) {
    const std::string port = Port();
    const auto rank = [&](int number, const std::string& file) {
      return "RANK=" + std::to_string(number) +
             " WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + " timeout 100 " +
             ZPP_PROGRAM + " bw all_gather -s 4K -n 1 --timeout 86400 --data '" + file + "' >" +
             Path("out") + std::to_string(number) + " 2>" + Path("err") + std::to_string(number) +
             "; echo $? >" + Path("code") + std::to_string(number);
    };
    const std::string both =
        "{ " + rank(1, data) + "; } & { " + rank(0, Path("data.raw")) + "; }; wait";
    ASSERT_EQ(std::system(both.c_str()), 0);
    EXPECT_EQ(ReadFile(Path("code0")), std::to_string(code) + "\n") << ReadFile(Path("err0"));
    EXPECT_EQ(ReadFile(Path("code1")), std::to_string(code) + "\n") << ReadFile(Path("err1"));
    EXPECT_THAT(ReadFile(Path("err0")), HasSubstr(says));
    EXPECT_EQ(Lines(ReadFile(Path("err0"))), 1);
    EXPECT_THAT(ReadFile(Path("err1")), IsEmpty());
  }
}

// As root a device could be renamed over, for everybody.
TEST_F(ZppProgram, JsonToADeviceLeavesTheDevice) {
  EXPECT_EQ(Run("topo --json /dev/null").code, 0);
  struct stat info = {};
  ASSERT_EQ(stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
}

}  // namespace
}  // namespace zpp::test
