// bench/plot.py: bad input is one sentence and exit code 2, as everywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace zpp::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class PlotTest : public testing::Test {
 protected:
  PlotTest() { std::filesystem::create_directories(folder_); }
  ~PlotTest() override { std::filesystem::remove_all(folder_); }
  void SetUp() override {
    if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "probe: no python3";
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  // Exit code and standard error.
  std::pair<int, std::string> Plot(const std::string& report) const {
    const std::string command = "timeout 60 python3 " ZPP_PLOT " '" + report + "' --out " +
                                Path("plot.svg") + " >/dev/null 2>" + Path("err");
    const int status = std::system(command.c_str());
    std::stringstream text;
    text << std::ifstream(Path("err")).rdbuf();
    return {WEXITSTATUS(status), text.str()};
  }
  const std::string folder_ = testing::TempDir() + "zpp_plot" + std::to_string(getpid());
};

TEST_F(PlotTest, BadReportsAreOneSentenceAndExitCodeTwo) {
  const std::string head = R"({"collective":"all_gather","ranks":2,"nodes":2,"dtype":"fp32",)";
  const std::string spec = R"("spec":{"intra":"int8","inter":"int8"},)";
  const std::string bad[] = {
      "",
      "{",
      "[]",
      "3",
      "null",
      R"({"error":"rank 1 is lost","results":[]})",
      R"({"results":{}})",
      R"({"results":[3]})",
      head + spec + R"("results":[]})",
      head + spec + R"("results":[{"size":8,"baseline":{}}]})",
      head + spec + R"("results":[{"size":"8","baseline":{"bus_bw":1}}]})",
      head + spec + R"("results":[{"size":8,"baseline":{"bus_bw":null}}]})",
      head + spec +
          R"("results":[{"size":8,"baseline":{"bus_bw":1},"compressed":{"bus_bw":1},"speedup":null}]})",
      head + R"("results":[{"size":8,"baseline":{"bus_bw":1}}]})",
      R"({"spec":{"intra":"int8","inter":"int8"},"results":[{"size":8,"baseline":{"bus_bw":1}}]})",
  };
  for (const std::string& text : bad) {
    std::ofstream(Path("report.json")) << text;
    const auto [code, err] = Plot(Path("report.json"));
    EXPECT_EQ(code, 2) << text << err;
    EXPECT_THAT(err, StartsWith("plot.py: ")) << text;
    EXPECT_THAT(err, HasSubstr(Path("report.json"))) << text;
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << text << err;
  }
  EXPECT_EQ(Plot(Path("none")).first, 2);
  EXPECT_EQ(Plot(folder_).first, 2);
}

}  // namespace
}  // namespace zpp::test
