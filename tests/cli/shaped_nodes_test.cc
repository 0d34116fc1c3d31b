// bench/shaped_nodes.sh: what it promises about exit codes, output and what is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <thread>

namespace {

using testing::HasSubstr;

struct Ran {
  int code = -1;
  std::string text;
};

Ran Shell(const std::string& command) {
  Ran ran;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) ran.text += buffer.data();
  ran.code = WEXITSTATUS(pclose(pipe));
  return ran;
}

Ran Shaped(const std::string& args) { return Shell("timeout 60 " ZPP_SHAPED_NODES " " + args); }

int Namespaces(pid_t of) {
  const Ran ran = Shell("ip netns list | grep -c '^zpp" + std::to_string(of) + "-'");
  return std::stoi(ran.text);
}

bool CanShape() {
  return geteuid() == 0 && Shell("ip netns add zpp-probe && ip netns del zpp-probe").code == 0;
}

TEST(ShapedNodes, UsageErrorsExitWithTwoAndOneSentence) {
  for (const char* args :
       {"", "--nodes", "--nodes 1 -- true", "--nodes x -- true", "--nodes 65 -- true",
        "--ranks-per-node 0 -- true", "--rate fast -- true", "--rate 1gib -- true",
        "--timeout -1 -- true", "--no-such-flag -- true", "true", "--", "-- /no/such/command"}) {
    const Ran ran = Shaped(args);
    EXPECT_EQ(ran.code, 2) << args;
    EXPECT_THAT(ran.text, testing::StartsWith("shaped_nodes.sh: ")) << args;
    EXPECT_EQ(std::count(ran.text.begin(), ran.text.end(), '\n'), 1) << args;
  }
}

TEST(ShapedNodes, RanksGetTheirVariablesAndOnlyRankZeroIsHeard) {
  if (!CanShape()) GTEST_SKIP() << "probe: no network namespaces (not root?)";
  const Ran ran = Shaped(
      "--nodes 3 --ranks-per-node 2 --rate 100mbit -- "
      "sh -c 'echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $GROUP_RANK'");
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.text, "rank 0 of 6, 0 of 2 on 0\n");
}

TEST(ShapedNodes, TheFirstFailureIsForwardedAndQuoted) {
  if (!CanShape()) GTEST_SKIP() << "probe: no network namespaces (not root?)";
  const Ran ran =
      Shaped("-- sh -c 'if [ $RANK = 1 ]; then echo because; exit 9; fi >&2; sleep 30'");
  EXPECT_EQ(ran.code, 9);
  EXPECT_THAT(ran.text, HasSubstr("[rank 1] because"));
}

TEST(ShapedNodes, TimeIsUp) {
  if (!CanShape()) GTEST_SKIP() << "probe: no network namespaces (not root?)";
  EXPECT_EQ(Shaped("--timeout 1 -- sleep 50").code, 124);
}

TEST(ShapedNodes, NothingIsLeftWhateverTheSignal) {
  if (!CanShape()) GTEST_SKIP() << "probe: no network namespaces (not root?)";
  for (const int number : {SIGTERM, SIGKILL}) {
    const pid_t pid = fork();
    if (pid == 0) {
      execl(ZPP_SHAPED_NODES, ZPP_SHAPED_NODES, "--", "sleep", "50", nullptr);
      _exit(127);
    }
    for (int i = 0; i < 200 && Namespaces(pid) < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(Namespaces(pid), 2);
    kill(pid, number);
    waitpid(pid, nullptr, 0);
    for (int i = 0; i < 500 && Namespaces(pid) > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(Namespaces(pid), 0) << number;
  }
}

TEST(ShapedNodes, CollectivesCrossTheShapedLink) {
  if (!CanShape()) GTEST_SKIP() << "probe: no network namespaces (not root?)";
  const Ran ran = Shaped("--ranks-per-node 2 --rate 1gbit -- " ZPP_PROGRAM
                         " bw reduce_scatter -s 1M -n 3 -w 1");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_THAT(ran.text, HasSubstr("# ranks 4 nodes 2"));
  EXPECT_THAT(ran.text, HasSubstr("posix"));
  EXPECT_THAT(ran.text, HasSubstr("tcp"));
}

}  // namespace
