#include "common/log.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace zpp {
namespace {

TEST(Log, PrintsRankLevelAndOneLine) {
  SetLogRank(3);
  ::testing::internal::CaptureStderr();
  Log(LogLevel::kError, "the link is down");
  Log(LogLevel::kDebug, "below the threshold");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "zpp [rank 3] error: the link is down\n");
  SetLogRank(-1);
}

// The level is read once: each value in a process of its own.
TEST(LogDeathTest, ReadsTheLevelAndNamesOneThatIsNone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [](const char* value) {
    ::setenv("ZPP_LOG", value, 1);
    for (LogLevel level :
         {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
      Log(level, "said");
    }
    std::exit(0);
  };
  const auto exited = ::testing::ExitedWithCode(0);
  const char* const from_warning = "^zpp warning: said\nzpp error: said\n$";
  EXPECT_EXIT(run("debug"), exited,
              "^zpp debug: said\nzpp info: said\nzpp warning: said\nzpp error");
  EXPECT_EXIT(run("error"), exited, "^zpp error: said\n$");
  EXPECT_EXIT(run("off"), exited, "^$");
  EXPECT_EXIT(run(""), exited, from_warning);
  EXPECT_EXIT(run("trace"), exited,
              "^zpp warning: ZPP_LOG='trace': expected debug .* off\nzpp warning: said\n");
}

TEST(Log, LevelsHaveTheNamesThatTheVariableTakes) {
  EXPECT_EQ(ParseLogLevel("debug"), LogLevel::kDebug);
  EXPECT_EQ(ParseLogLevel("off"), LogLevel::kOff);
  for (const char* none : {"", "trace", "Debug", "warning "}) EXPECT_FALSE(ParseLogLevel(none));
}

TEST(Log, OffIsNeverALevelOfALine) { EXPECT_FALSE(LogEnabled(LogLevel::kOff)); }

}  // namespace
}  // namespace zpp
