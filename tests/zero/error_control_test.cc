#include "zero/error_control.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace zpp {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(ExactStep, EveryPeriodthStepCountedFromOne) {
  std::vector<int64_t> exact;
  for (int64_t step = 1; step <= 10; ++step) {
    if (IsExactStep(step, 3)) exact.push_back(step);
  }
  EXPECT_EQ(exact, (std::vector<int64_t>{3, 6, 9}));
}

TEST(ExactStep, ZeroIsNeverOneIsAlways) {
  for (int64_t step : {int64_t{1}, int64_t{2}, int64_t{100}, int64_t{1} << 40}) {
    EXPECT_FALSE(IsExactStep(step, 0));
    EXPECT_FALSE(IsExactStep(step, -1));
    EXPECT_TRUE(IsExactStep(step, 1));
  }
}

TEST(ResidualCarry, WithoutClippingNothingChanges) {
  ResidualCarry carry;
  for (int step = 0; step < 100; ++step) ASSERT_EQ(carry.Factor(1, 1), 1.0f);
  EXPECT_EQ(carry.mean(), 1);
}

TEST(ResidualCarry, DampsABadBatchAndForgetsIt) {
  ResidualCarry carry;
  for (int step = 0; step < 50; ++step) (void)carry.Factor(0.8, 1);
  EXPECT_NEAR(carry.mean(), 0.8, 1e-2);
  EXPECT_NEAR(carry.Factor(0.0006, 1), 0.0006 / 0.8, 1e-5);
  EXPECT_EQ(carry.Factor(0.8, 1), 1.0f);  // the mean is lower now, so the next step is not damped
}

TEST(ResidualCarry, DampsABadFirstBatch) {
  ResidualCarry carry;
  EXPECT_FLOAT_EQ(carry.Factor(0.001, 1), 0.001f);
}

// A trainer that always clips by the same coefficient owes what it lost, undamped.
TEST(ResidualCarry, ConstantClippingTendsToOne) {
  ResidualCarry carry;
  float factor = 0;
  for (int step = 0; step < 100; ++step) factor = carry.Factor(0.05, 1);
  EXPECT_NEAR(factor, 1.0f, 1e-3);
}

TEST(ResidualCarry, FollowsTheLossScale) {
  ResidualCarry carry;
  EXPECT_EQ(carry.Factor(1, 2), 2.0f);
  EXPECT_EQ(carry.Factor(1, 0.5), 0.5f);
  EXPECT_EQ(carry.Factor(0.25, 64), 16.0f);
}

TEST(ResidualCarry, IsAlwaysFiniteAndNotNegative) {
  const double values[] = {0, -0.0, -1, 1e-320, 1e-300, 0.3, 1, 7, 1e300, kInf, -kInf, kNaN};
  ResidualCarry carry;
  for (int round = 0; round < 3; ++round) {
    for (double clip : values) {
      for (double ratio : values) {
        const float factor = carry.Factor(clip, ratio);
        ASSERT_TRUE(std::isfinite(factor) && factor >= 0) << clip << " " << ratio;
        ASSERT_TRUE(carry.mean() > 0 && carry.mean() <= 1) << clip << " " << ratio;
      }
    }
  }
}

TEST(ResidualCarry, MeanSurvivesCoefficientsThatVanish) {
  ResidualCarry carry;
  for (int step = 0; step < 20000; ++step) {
    const float factor = carry.Factor(1e-320, 1);
    ASSERT_TRUE(factor >= 0 && factor <= 1);
  }
  EXPECT_GT(carry.mean(), 0);
}

TEST(ResidualCarry, GoesOnFromACheckpoint) {
  ResidualCarry whole;
  for (double clip : {0.5, 0.9, 0.1}) (void)whole.Factor(clip, 1);
  ResidualCarry resumed;
  ASSERT_TRUE(resumed.set_mean(whole.mean()).ok());
  for (double clip : {0.2, 0.7}) EXPECT_EQ(resumed.Factor(clip, 1), whole.Factor(clip, 1));
  for (double bad : {0.0, -1.0, 1.5, kInf, kNaN}) {
    EXPECT_EQ(resumed.set_mean(bad).code(), StatusCode::kDataLoss) << bad;
  }
}

// Statistics of a vector whose encoding has this relative error.
ErrorStats WithError(double rel_error, double value_sq = 100) {
  return {.sum_squared_error = rel_error * rel_error * value_sq, .sum_squared_value = value_sq};
}

BitControl Make(int min_bits, double max_rel_error, int buckets = 1) {
  Result<BitControl> control =
      BitControl::Create(buckets, {.min_bits = min_bits, .max_rel_error = max_rel_error});
  EXPECT_TRUE(control.ok());
  return std::move(control).value();
}

TEST(BitControl, WithoutABoundNothingMoves) {
  BitControl control = Make(4, 0);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(control.Observe(0, WithError(10), WithError(0)));
  EXPECT_EQ(control.bits(0), 4);
}

TEST(BitControl, GoesUpLevelByLevelAboveTheBound) {
  BitControl control = Make(4, 0.1, 3);
  EXPECT_FALSE(control.Observe(1, WithError(0.1)));  // at the bound is inside
  EXPECT_TRUE(control.Observe(1, WithError(0.11)));
  EXPECT_EQ(control.bits(1), 8);
  EXPECT_TRUE(control.Observe(1, WithError(0.2)));
  EXPECT_EQ(control.bits(1), 16);
  EXPECT_FALSE(control.Observe(1, WithError(0.2)));
  EXPECT_EQ(control.bits(0), 4);  // buckets have nothing to do with each other
  EXPECT_EQ(control.bits(2), 4);
  control.Reset();
  EXPECT_EQ(control.bits(1), 4);
}

TEST(BitControl, GoesDownWhenTheCoarserEncodingWouldDoTwiceInARow) {
  BitControl control = Make(4, 0.1);
  ASSERT_TRUE(control.Observe(0, WithError(0.2)));
  EXPECT_FALSE(control.Observe(0, WithError(0.01), WithError(0.05)));
  EXPECT_FALSE(control.Observe(0, WithError(0.01), WithError(0.09)));  // in the band: starts anew
  EXPECT_FALSE(control.Observe(0, WithError(0.01), WithError(0.05)));
  EXPECT_TRUE(control.Observe(0, WithError(0.01), WithError(0.05)));
  EXPECT_EQ(control.bits(0), 4);
}

// An error that wanders around the bound by less than the band's width moves a bucket up once.
TEST(BitControl, DoesNotFlap) {
  BitControl control = Make(4, 0.1);
  int moves = 0;
  for (int i = 0; i < 100; ++i) {
    const double at_4 = 0.1 * (1 + 0.25 * std::sin(i));
    const bool coarse = control.bits(0) == 4;
    moves += control.Observe(0, WithError(coarse ? at_4 : at_4 / 15), WithError(at_4)) ? 1 : 0;
  }
  EXPECT_EQ(moves, 1);
  EXPECT_EQ(control.bits(0), 8);
}

TEST(BitControl, GoesDownFrom16OnlyByAMeasurement) {
  BitControl control = Make(4, 0.1);
  ASSERT_TRUE(control.Observe(0, WithError(0.2)));
  ASSERT_TRUE(control.Observe(0, WithError(0.2)));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(control.Observe(0, WithError(0)));
  EXPECT_FALSE(control.Observe(0, {}, WithError(0.01)));
  EXPECT_TRUE(control.Observe(0, {}, WithError(0.01)));
  EXPECT_EQ(control.bits(0), 8);
}

TEST(BitControl, ExpectsFour16TimesAsWrongAsEight) {
  BitControl control = Make(4, 0.1);
  ASSERT_TRUE(control.Observe(0, WithError(0.2)));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(control.Observe(0, WithError(0.005)));
  EXPECT_FALSE(control.Observe(0, WithError(0.004)));
  EXPECT_TRUE(control.Observe(0, WithError(0.004)));
}

TEST(BitControl, NeverBelowTheConfiguredBits) {
  for (int bits : {8, 16}) {
    BitControl control = Make(bits, 0.1);
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(control.Observe(0, WithError(0), WithError(0)));
    EXPECT_EQ(control.bits(0), bits);
  }
}

TEST(BitControl, StatisticsOfNothingChangeNothing) {
  BitControl control = Make(4, 0.1);
  ASSERT_TRUE(control.Observe(0, WithError(0.2)));
  EXPECT_FALSE(control.Observe(0, WithError(0.01), WithError(0.05)));
  EXPECT_FALSE(control.Observe(0, {}, {}));  // does not even break the row of calm audits
  EXPECT_TRUE(control.Observe(0, WithError(0.01), WithError(0.05)));
  ErrorStats undefined;
  undefined.sum_squared_value = kNaN;
  undefined.sum_squared_error = kNaN;
  EXPECT_FALSE(control.Observe(0, undefined, undefined));
  EXPECT_EQ(control.bits(0), 4);
}

TEST(BitControl, RefusesOptionsInOneSentence) {
  for (int bits : {0, 2, 5, 32}) EXPECT_FALSE(BitControl::Create(1, {.min_bits = bits}).ok());
  for (double bound : {-0.1, kInf, kNaN}) {
    EXPECT_EQ(BitControl::Create(1, {.max_rel_error = bound}).status().code(),
              StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(BitControl::Create(-1, {}).ok());
  EXPECT_EQ(Make(4, 0, 0).buckets(), 0);
}

TEST(BitControl, GoesOnFromACheckpoint) {
  BitControl whole = Make(4, 0.1, 2);
  (void)whole.Observe(0, WithError(0.2));
  (void)whole.Observe(0, WithError(0.01), WithError(0.05));
  BitControl resumed = Make(4, 0.1, 2);
  ASSERT_TRUE(resumed.Restore(whole.state()).ok());
  EXPECT_EQ(resumed.state(), whole.state());
  EXPECT_TRUE(resumed.Observe(0, WithError(0.01), WithError(0.05)));
  EXPECT_EQ(resumed.bits(0), 4);
}

TEST(BitControl, RestoreUnderOtherOptions) {
  const std::vector<int32_t> state = {4, 1, 8, 0, 16, 0};
  BitControl wider = Make(8, 0.1, 3);
  ASSERT_TRUE(wider.Restore(state).ok());
  EXPECT_EQ(wider.state(), (std::vector<int32_t>{8, 0, 8, 0, 16, 0}));
  BitControl unbounded = Make(4, 0, 3);
  ASSERT_TRUE(unbounded.Restore(state).ok());
  EXPECT_EQ(unbounded.state(), (std::vector<int32_t>{4, 0, 4, 0, 4, 0}));
}

TEST(BitControl, RestoreRefusesWhatStateNeverGives) {
  BitControl control = Make(4, 0.1, 1);
  const std::vector<std::vector<int32_t>> bad = {{}, {4}, {4, 0, 4, 0}, {5, 0}, {4, 2}, {4, -1}};
  for (const std::vector<int32_t>& state : bad) {
    EXPECT_EQ(control.Restore(state).code(), StatusCode::kDataLoss);
    EXPECT_EQ(control.bits(0), 4);
  }
}

}  // namespace
}  // namespace zpp
