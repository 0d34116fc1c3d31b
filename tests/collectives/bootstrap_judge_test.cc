// The verdict, without sockets and clocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/bootstrap/internal/judge.h"
#include "collectives/bootstrap/internal/mailbox.h"

namespace zpp::internal {
namespace {

using testing::HasSubstr;

constexpr Patience kPatience{.heartbeat_s = 0.2, .suspect_s = 1, .silent_s = 10};

// A judge of four whose clock starts at 100 s.
class JudgeTest : public testing::Test {
 protected:
  void Beat(std::initializer_list<int> ranks) {
    for (const int rank : ranks) judge.Handle(rank, {FrameType::kHeartbeat, {}}, now_s);
  }
  // Time passes in steps of a heartbeat; `alive` go on beating.
  void Pass(double seconds, std::initializer_list<int> alive) {
    for (const double end_s = now_s + seconds; now_s < end_s;) {
      now_s += 0.1;
      Beat(alive);
      judge.Tick(now_s);
    }
  }
  void Report(int rank, int suspect) {
    judge.Handle(rank, {FrameType::kReport, ReportBody{suspect, "waits"}.Pack()}, now_s);
  }
  int Lost() const { return judge.verdict() ? judge.verdict()->lost_rank() : -1; }

  double now_s = 100;
  Judge judge{4, kPatience, 100};
};

TEST_F(JudgeTest, NobodyIsLostWhileAllBeat) {
  Pass(100, {0, 1, 2, 3});
  EXPECT_FALSE(judge.verdict());
  EXPECT_TRUE(judge.TakeMail().empty());
}

TEST_F(JudgeTest, AConnectionThatEndsIsALossOnceForAll) {
  judge.Closed(2, "is gone", now_s);
  EXPECT_EQ(Lost(), 2);
  const auto mail = judge.TakeMail();
  ASSERT_EQ(mail.size(), 3u);  // all but the lost
  for (const auto& one : mail) {
    EXPECT_EQ(one.frame.type, FrameType::kVerdict);
    EXPECT_EQ(UnpackStatus(one.frame.body).lost_rank(), 2);
  }
  judge.Closed(1, "is gone too", now_s);
  EXPECT_EQ(Lost(), 2);
  EXPECT_TRUE(judge.TakeMail().empty());
}

TEST_F(JudgeTest, WhoLeavesFailsAtOnceWhatOthersGather) {
  judge.Handle(1, {FrameType::kGather, GatherBody{1, 5000, "x"}.Pack()}, now_s);
  judge.Handle(0, {FrameType::kLeave, {}}, now_s);
  const auto mail = judge.TakeMail();  // without another Tick
  ASSERT_EQ(mail.size(), 1u);
  EXPECT_EQ(mail[0].to, 1);
  EXPECT_EQ(mail[0].frame.type, FrameType::kGatherFailed);
  EXPECT_FALSE(judge.verdict());
}

TEST_F(JudgeTest, WhoComesLateToWhatHasFailedIsToldAtOnce) {
  judge.Handle(1, {FrameType::kGather, GatherBody{7, 500, "x"}.Pack()}, now_s);
  Pass(1, {0, 1, 2, 3});
  ASSERT_EQ(judge.TakeMail().size(), 1u);  // rank 1 waited long enough
  judge.Handle(2, {FrameType::kGather, GatherBody{7, 60000, "y"}.Pack()}, now_s);
  const auto mail = judge.TakeMail();
  ASSERT_EQ(mail.size(), 1u);
  EXPECT_EQ(mail[0].to, 2);
  EXPECT_EQ(mail[0].frame.type, FrameType::kGatherFailed);
  // The next exchange is another one.
  for (int rank = 0; rank < 4; ++rank) {
    judge.Handle(rank, {FrameType::kGather, GatherBody{8, 500, "z"}.Pack()}, now_s);
  }
  const auto gathered = judge.TakeMail();
  ASSERT_EQ(gathered.size(), 4u);
  EXPECT_EQ(gathered[0].frame.type, FrameType::kGathered);
}

TEST_F(JudgeTest, WhoLeavesIsNotLost) {
  judge.Handle(2, {FrameType::kLeave, {}}, now_s);
  judge.Closed(2, "it closed", now_s);
  Pass(100, {0, 1, 3});
  EXPECT_FALSE(judge.verdict());
  // Unless somebody still needs him.
  Report(1, 2);
  EXPECT_EQ(Lost(), 2);
  EXPECT_THAT(judge.verdict()->message(), HasSubstr("has left"));
}

TEST_F(JudgeTest, SilenceAloneIsForgivenForLong) {
  Pass(9.5, {0, 1, 2});
  EXPECT_FALSE(judge.verdict());
  Pass(1, {0, 1, 2});
  EXPECT_EQ(Lost(), 3);
}

TEST_F(JudgeTest, ASilentRankIsLostAtOnceWhenSomebodyIsStuck) {
  Pass(2, {0, 1, 2});
  Report(0, 1);  // names the wrong one: its neighbour
  judge.Tick(now_s);
  EXPECT_EQ(Lost(), 3);
}

TEST_F(JudgeTest, AReportBeforeTheSilenceShowsWaitsForIt) {
  Pass(0.3, {0, 1, 2});
  Report(0, 3);
  judge.Tick(now_s);
  EXPECT_FALSE(judge.verdict());
  Pass(1, {0, 1, 2});
  EXPECT_EQ(Lost(), 3);
}

TEST_F(JudgeTest, ALivingRankThatTakesNoPartIsNamed) {
  Report(0, 1);
  Report(1, 2);
  Report(3, 2);
  Pass(0.8, {0, 1, 2, 3});
  EXPECT_FALSE(judge.verdict());
  Pass(0.4, {0, 1, 2, 3});
  EXPECT_EQ(Lost(), 2);
  EXPECT_THAT(judge.verdict()->message(),
              HasSubstr("lives but takes no part: ranks 0, 1, 3 waited"));
}

TEST_F(JudgeTest, OneWhoNamesManyDoesNotHideTheCulprit) {
  Report(0, 1);
  Report(0, 2);
  Report(1, 2);
  Report(3, 0);
  Pass(1.2, {0, 1, 2, 3});
  EXPECT_EQ(Lost(), 2);
}

TEST_F(JudgeTest, WhenAllAreStuckNobodyIsBlamed) {
  for (int rank = 0; rank < 4; ++rank) Report(rank, (rank + 1) % 4);
  Pass(1.2, {0, 1, 2, 3});
  ASSERT_TRUE(judge.verdict());
  EXPECT_EQ(judge.verdict()->code(), StatusCode::kDeadlineExceeded);
}

TEST_F(JudgeTest, OurOwnAbsenceIsNotTheOthersSilence) {
  now_s += 60;  // this process was stopped; what the others sent meanwhile is read after
  judge.Tick(now_s);
  EXPECT_FALSE(judge.verdict());
  Pass(5, {0, 1, 2, 3});
  EXPECT_FALSE(judge.verdict());
}

TEST_F(JudgeTest, AbortEndsAll) {
  judge.Handle(1, {FrameType::kAbort, "enough"}, now_s);
  ASSERT_TRUE(judge.verdict());
  EXPECT_EQ(judge.verdict()->code(), StatusCode::kAborted);
  EXPECT_THAT(judge.verdict()->message(), HasSubstr("rank 1 aborted: enough"));
  EXPECT_EQ(judge.TakeMail().size(), 4u);
}

TEST_F(JudgeTest, GathersInRankOrder) {
  for (const int rank : {2, 0, 3, 1}) {
    const GatherBody body{
        .sequence = 7, .patience_ms = 1000, .blob = std::string(1, static_cast<char>('a' + rank))};
    judge.Handle(rank, {FrameType::kGather, body.Pack()}, now_s);
  }
  const auto mail = judge.TakeMail();
  ASSERT_EQ(mail.size(), 4u);
  EXPECT_EQ(mail[0].frame.body, PackGathered(7, {"a", "b", "c", "d"}));
}

TEST_F(JudgeTest, AGatheringThatIsLateNamesTheMissing) {
  for (const int rank : {0, 2}) {
    judge.Handle(rank, {FrameType::kGather, GatherBody{1, 500, "x"}.Pack()}, now_s);
  }
  Pass(0.3, {0, 1, 2, 3});
  EXPECT_TRUE(judge.TakeMail().empty());
  Pass(0.4, {0, 1, 2, 3});
  const auto mail = judge.TakeMail();
  ASSERT_EQ(mail.size(), 2u);
  EXPECT_EQ(mail[0].frame.type, FrameType::kGatherFailed);
  EXPECT_THAT(mail[0].frame.body, HasSubstr("ranks 1, 3 never came"));
  EXPECT_FALSE(judge.verdict());
}

TEST_F(JudgeTest, BytesThatMeanNothingLoseTheirSender) {
  judge.Handle(3, {FrameType::kGather, "rubbish"}, now_s);
  EXPECT_EQ(Lost(), 3);
}

TEST(PatienceOf, FollowsHeartbeatAndTimeout) {
  EXPECT_DOUBLE_EQ(Patience::Of(0.2, 30).suspect_s, 1);
  EXPECT_DOUBLE_EQ(Patience::Of(1, 30).suspect_s, 5);
  EXPECT_DOUBLE_EQ(Patience::Of(0.2, 0.6).suspect_s, 0.6);
  EXPECT_DOUBLE_EQ(Patience::Of(0.2, 30).silent_s, 30);
}

}  // namespace
}  // namespace zpp::internal
