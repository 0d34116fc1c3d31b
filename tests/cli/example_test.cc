// The public example learns, as threads of one process and as processes of a launcher.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::pair<int, std::string> Output(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string text;
  std::array<char, 4096> piece{};
  while (std::fgets(piece.data(), piece.size(), pipe) != nullptr) text += piece.data();
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, text};
}

double LossOf(const std::string& text, const std::string& step) {
  const size_t at = text.find("step " + step + "  loss ");
  return at == std::string::npos ? -1 : std::atof(text.c_str() + at + 15);
}

void ExpectLearned(const std::pair<int, std::string>& ran) {
  ASSERT_EQ(ran.first, 0) << ran.second;
  EXPECT_NEAR(LossOf(ran.second, "  1"), 2.3026, 1e-3) << ran.second;  // ln 10: even odds
  const double last = LossOf(ran.second, "200");
  EXPECT_GT(last, 0) << ran.second;
  EXPECT_LT(last, 0.7) << ran.second;
  EXPECT_NE(ran.second.find("(exact step)"), std::string::npos) << ran.second;
}

TEST(TrainTiny, LearnsAsThreads) { ExpectLearned(Output("timeout 100 " ZPP_TRAIN_TINY)); }

TEST(TrainTiny, LearnsAsRanksOfALauncher) {
  const std::string variables =
      "WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(20000 + getpid() % 20000) +
      " ";
  ExpectLearned(Output("bash -c '" + variables + "RANK=1 timeout 100 " ZPP_TRAIN_TINY " & " +
                       variables + "RANK=0 timeout 100 " ZPP_TRAIN_TINY "; code=$?; wait $! && " +
                       "exit $code'"));
}

}  // namespace
