#include "common/log.h"

#include <gtest/gtest.h>

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

TEST(Log, OffIsNeverALevelOfALine) { EXPECT_FALSE(LogEnabled(LogLevel::kOff)); }

}  // namespace
}  // namespace zpp
