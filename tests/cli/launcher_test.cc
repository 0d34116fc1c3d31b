// The launcher, with the shell as the program that it starts.
#include "cli/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace zpp::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

LaunchSpec Shell(int ranks, const std::string& script) {
  LaunchSpec spec;
  spec.ranks = ranks;
  spec.program = "/bin/sh";
  spec.args = {"-c", script};
  spec.grace_s = 0.3;
  return spec;
}

class LauncherTest : public testing::Test {
 protected:
  LauncherTest() : folder_(testing::TempDir() + "launcher" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~LauncherTest() override { std::filesystem::remove_all(folder_); }
  std::string Read(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(folder_ + "/" + name).rdbuf();
    return text.str();
  }
  std::string folder_;
};

TEST_F(LauncherTest, EveryRankGetsItsVariables) {
  const std::string script =
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR > " + folder_ +
      "/$RANK; test \"$MASTER_PORT\" -gt 0";
  EXPECT_EQ(Launch(Shell(3, script)), 0);
  EXPECT_EQ(Read("0"), "0 3 0 3 127.0.0.1\n");
  EXPECT_EQ(Read("2"), "2 3 2 3 127.0.0.1\n");
}

TEST_F(LauncherTest, OnlyRankZeroIsHeard) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(Launch(Shell(3, "echo out $RANK; echo err $RANK >&2")), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "out 0\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "err 0\n");
}

TEST_F(LauncherTest, FirstFailureDecidesAndIsQuoted) {
  testing::internal::CaptureStderr();
  const std::string script = "if [ $RANK = 2 ]; then echo because >&2; exit 7; fi; sleep 30";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(Launch(Shell(4, script)), 7);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("[rank 2] because"));
}

// Exit code 2 is bad input: of all ranks rank 0 is heard, of one alone that one.
TEST_F(LauncherTest, WhatIsBadForAllIsSaidOnce) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(Launch(Shell(3, "echo bad >&2; exit 2")), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "bad\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(Launch(Shell(3, "if [ $RANK = 1 ]; then echo bad >&2; exit 2; fi; sleep 30")), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("[rank 1] bad"));
}

TEST_F(LauncherTest, OnlyALevelThatIsOneLetsAllRanksBeHeard) {
  for (const auto& [level, lines] : {std::pair("info", 3), std::pair("loud", 1)}) {
    setenv("ZPP_LOG", level, 1);
    testing::internal::CaptureStderr();
    EXPECT_EQ(Launch(Shell(3, "echo said >&2")), 0);
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), lines) << level;
    unsetenv("ZPP_LOG");
  }
}

TEST_F(LauncherTest, OthersMayEndByThemselvesFirst) {
  LaunchSpec spec = Shell(
      2, "if [ $RANK = 1 ]; then exit 3; fi; sleep 0.5; echo done > " + folder_ + "/zero; exit 1");
  spec.grace_s = 20;
  EXPECT_EQ(Launch(spec), 3);
  EXPECT_EQ(Read("zero"), "done\n");
}

TEST_F(LauncherTest, AKilledRankIs128PlusItsSignal) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(Launch(Shell(2, "if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 30")), 128 + SIGKILL);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("rank 1 was killed by signal 9"));
}

TEST_F(LauncherTest, RanksThatIgnoreTermAreKilledAndReaped) {
  testing::internal::CaptureStderr();
  // Rank 0 fails when rank 1 has said that it ignores the signal.
  const std::string script = "if [ $RANK = 0 ]; then while [ ! -s " + folder_ +
                             "/1 ]; do sleep 0.05; done; exit 5; fi; trap '' TERM; echo $$ > " +
                             folder_ + "/1; while :; do sleep 0.1; done";
  EXPECT_EQ(Launch(Shell(2, script)), 5);
  testing::internal::GetCapturedStderr();
  const int pid = std::stoi(Read("1"));
  EXPECT_EQ(kill(pid, 0), -1) << "rank 1 is still there";
}

// In a child of its own: the signals are meant for it.
pid_t LaunchInChild(const LaunchSpec& spec) {
  const pid_t pid = fork();
  if (pid == 0) _exit(Launch(spec));
  return pid;
}

std::string WaitFor(const std::function<std::string()>& read) {
  for (int i = 0; i < 500; ++i) {
    const std::string text = read();
    if (!text.empty()) return text;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return "";
}

TEST_F(LauncherTest, ASignalEndsAllRanks) {
  for (const int number : {SIGINT, SIGTERM}) {
    std::filesystem::remove(folder_ + "/1");
    const pid_t launcher =
        LaunchInChild(Shell(2, "echo $$ > " + folder_ + "/$RANK; exec sleep 60"));
    const std::string text = WaitFor([&] { return Read("1"); });
    ASSERT_NE(text, "");
    kill(launcher, number);
    int status = 0;
    ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
    EXPECT_EQ(WEXITSTATUS(status), 128 + number);
    EXPECT_EQ(kill(std::stoi(text), 0), -1);
  }
}

TEST_F(LauncherTest, RanksDieWithTheLauncher) {
  const pid_t launcher = LaunchInChild(Shell(2, "echo $$ > " + folder_ + "/$RANK; exec sleep 60"));
  const std::string text = WaitFor([&] { return Read("1"); });
  ASSERT_NE(text, "");
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  // Whoever inherits it may reap it late: a zombie is dead enough.
  const std::string stat_path = "/proc/" + std::to_string(std::stoi(text)) + "/stat";
  const std::string gone = WaitFor([&]() -> std::string {
    std::stringstream stat;
    stat << std::ifstream(stat_path).rdbuf();
    return stat.str().empty() || stat.str().find(") Z") != std::string::npos ? "gone" : "";
  });
  EXPECT_EQ(gone, "gone");
}

TEST(WithoutRanksFlag, TakesItsValueAlong) {
  EXPECT_THAT(WithoutRanksFlag({"bw", "--ranks", "4", "-s", "8"}), ElementsAre("bw", "-s", "8"));
  EXPECT_THAT(WithoutRanksFlag({"bw", "--ranks=4", "x"}), ElementsAre("bw", "x"));
  EXPECT_THAT(WithoutRanksFlag({"--ranks"}), ElementsAre());
}

}  // namespace
}  // namespace zpp::cli
