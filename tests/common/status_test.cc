#include "common/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace zpp {
namespace {

constexpr StatusCode kAll[] = {StatusCode::kOk,
                               StatusCode::kInvalidArgument,
                               StatusCode::kNotFound,
                               StatusCode::kDataLoss,
                               StatusCode::kUnimplemented,
                               StatusCode::kUnavailable,
                               StatusCode::kDeadlineExceeded,
                               StatusCode::kPeerLost,
                               StatusCode::kAborted,
                               StatusCode::kMismatch,
                               StatusCode::kResourceExhausted,
                               StatusCode::kInternal};

TEST(Status, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.lost_rank(), -1);
  EXPECT_EQ(status.ToString(), "OK");
}

TEST(Status, PeerLostNamesTheRank) {
  const Status status = Status::PeerLost(3, "rank 3 closed its control socket");
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_EQ(status.lost_rank(), 3);
  EXPECT_EQ(status.ToString(), "PEER_LOST: rank 3 closed its control socket");
}

TEST(Status, CodesAreOrderedByRemedy) {
  Remedy last = Remedy::kNone;
  for (StatusCode code : kAll) {
    EXPECT_GE(RemedyFor(code), last) << StatusCodeName(code);
    last = RemedyFor(code);
  }
  EXPECT_EQ(last, Remedy::kGiveUp);
}

TEST(Status, EveryCodeHasItsOwnName) {
  for (StatusCode a : kAll) {
    EXPECT_NE(StatusCodeName(a), "UNKNOWN");
    for (StatusCode b : kAll) EXPECT_EQ(a == b, StatusCodeName(a) == StatusCodeName(b));
  }
}

Result<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("odd");
  return x / 2;
}

Result<int> Quarter(int x) {
  ZPP_ASSIGN_OR_RETURN(const int half, Half(x));
  ZPP_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

Status IsMultipleOf4(int x) {
  ZPP_RETURN_IF_ERROR(Half(x).status());
  return Quarter(x).status();
}

TEST(Result, ValueOrStatus) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(IsMultipleOf4(4).ok());
  EXPECT_EQ(IsMultipleOf4(3).message(), "odd");
}

TEST(Result, HoldsMoveOnlyTypes) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, AnOkStatusIsABug) {
  const Result<int> result{Status()};
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace zpp
