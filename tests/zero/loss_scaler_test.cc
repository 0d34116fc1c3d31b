// Whole sequences of steps, each with the scale that DeepSpeed's DynamicLossScaler has after it.
#include "zero/loss_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace zpp {
namespace {

using ::testing::HasSubstr;

LossScaler Make(const LossScalerConfig& config) {
  Result<LossScaler> scaler = LossScaler::Create(config);
  EXPECT_TRUE(scaler.ok()) << scaler.status().ToString();
  return *scaler;
}

// 'o' overflowed, '.' did not. The scales after each step, as powers of two.
std::vector<int> Scales(LossScaler& scaler, const std::string& steps) {
  std::vector<int> powers;
  for (char step : steps) {
    const Status status = scaler.Update(step == 'o');
    EXPECT_TRUE(status.ok()) << status.ToString();
    powers.push_back(static_cast<int>(std::log2(scaler.scale())));
  }
  return powers;
}

struct Sequence {
  std::string name;
  LossScalerConfig config;
  std::string steps;
  std::vector<int> powers;
};

// With initial_scale_power 10 unless said.
LossScalerConfig Config(int64_t window, int64_t hysteresis, bool consecutive = false) {
  return {.initial_scale_power = 10,
          .loss_scale_window = window,
          .hysteresis = hysteresis,
          .consecutive_hysteresis = consecutive};
}

const std::vector<Sequence>& Sequences() {
  static const std::vector<Sequence> sequences = {
      {"it grows on the good step after each window",
       Config(3, 1),
       "..........",
       {10, 10, 10, 11, 11, 11, 12, 12, 12, 13}},
      {"a window of one", Config(1, 1), "....", {10, 11, 12, 13}},
      {"an overflow starts the window again",
       Config(3, 1),
       "..o....o...",
       {10, 10, 9, 9, 9, 9, 10, 9, 9, 9, 9}},
      {"every overflow halves without hysteresis", Config(100, 1), "ooo.o", {9, 8, 7, 7, 6}},
      {"hysteresis forgives the first overflows, once",
       Config(100, 3),
       "oo.o.oo",
       {10, 10, 10, 9, 9, 8, 7}},
      {"growth refills the hysteresis", Config(2, 2), "o...oo.", {10, 10, 10, 11, 11, 10, 10}},
      {"good steps alone do not",
       Config(100, 2),
       "o.........o",
       {10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 9}},
      {"unless hysteresis is consecutive",
       Config(100, 2, true),
       "o.o.oo.oo",
       {10, 10, 10, 10, 10, 9, 9, 9, 8}},
      {"the window counts from the last overflow, forgiven or not",
       Config(2, 2),
       ".o.o...",
       {10, 10, 10, 9, 9, 9, 10}},
      {"it stops at the minimum",
       {.initial_scale_power = 2, .hysteresis = 1, .min_loss_scale = 2},
       "o",
       {1}},
  };
  return sequences;
}

TEST(LossScaler, WholeSequences) {
  for (const Sequence& sequence : Sequences()) {
    LossScaler scaler = Make(sequence.config);
    EXPECT_TRUE(scaler.dynamic());
    EXPECT_EQ(Scales(scaler, sequence.steps), sequence.powers) << sequence.name;
  }
}

TEST(LossScaler, DefaultsAreThoseOfDeepSpeed) {
  LossScaler scaler = Make({});
  EXPECT_EQ(scaler.scale(), 65536);
  EXPECT_EQ(Scales(scaler, "oo"), (std::vector<int>{16, 15}));
  for (int step = 0; step < 1000; ++step) ASSERT_TRUE(scaler.Update(false).ok());
  EXPECT_EQ(scaler.scale(), 32768);
  EXPECT_TRUE(scaler.Update(false).ok());
  EXPECT_EQ(scaler.scale(), 65536);
}

// DeepSpeed raises an exception there and leaves everything as it was.
TEST(LossScaler, OverflowAtTheMinimumIsAnError) {
  LossScaler scaler = Make({.initial_scale_power = 1, .hysteresis = 2, .min_loss_scale = 1});
  EXPECT_EQ(Scales(scaler, "oo"), (std::vector<int>{1, 0}));
  const LossScalerState before = scaler.state();
  const Status status = scaler.Update(true);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("min_loss_scale"));
  EXPECT_EQ(scaler.state(), before);
  EXPECT_TRUE(scaler.Update(false).ok());
}

// Halving does not go below a minimum that is no power of two, and then it is the minimum.
TEST(LossScaler, MinimumBetweenTwoPowers) {
  LossScaler scaler = Make({.initial_scale_power = 2, .hysteresis = 1, .min_loss_scale = 3});
  EXPECT_TRUE(scaler.Update(true).ok());
  EXPECT_EQ(scaler.scale(), 3);
  EXPECT_FALSE(scaler.Update(true).ok());
}

TEST(LossScaler, GrowthEndsWhereFp32Does) {
  LossScaler scaler = Make({.initial_scale_power = 124, .loss_scale_window = 1, .hysteresis = 1});
  EXPECT_EQ(Scales(scaler, "......"), (std::vector<int>{124, 125, 126, 126, 126, 126}));
  EXPECT_TRUE(std::isnormal(static_cast<float>(scaler.scale())));
  EXPECT_TRUE(std::isnormal(static_cast<float>(1 / scaler.scale())));
}

TEST(LossScaler, StaticScalesNeverChange) {
  LossScaler scaler = Make({.loss_scale = 384, .hysteresis = 1, .min_loss_scale = 384});
  EXPECT_FALSE(scaler.dynamic());
  for (int step = 0; step < 3000; ++step) {
    ASSERT_TRUE(scaler.Update(step % 3 == 0).ok());
    ASSERT_EQ(scaler.scale(), 384);
  }
  LossScaler none;
  EXPECT_TRUE(none.Update(true).ok());
  EXPECT_EQ(none.scale(), 1);
}

// Stopped and restored at every step of every sequence, it goes on as if never stopped.
TEST(LossScaler, RestoredStateContinues) {
  for (const Sequence& sequence : Sequences()) {
    for (size_t stop = 0; stop <= sequence.steps.size(); ++stop) {
      LossScaler first = Make(sequence.config);
      std::vector<int> powers = Scales(first, sequence.steps.substr(0, stop));
      LossScaler second = Make(sequence.config);
      ASSERT_TRUE(second.Restore(first.state()).ok()) << sequence.name << " at " << stop;
      for (int power : Scales(second, sequence.steps.substr(stop))) powers.push_back(power);
      EXPECT_EQ(powers, sequence.powers) << sequence.name << " stopped at " << stop;
    }
  }
}

TEST(LossScaler, RestoringKeepsAStaticScale) {
  LossScaler dynamic = Make({});
  ASSERT_TRUE(dynamic.Update(true).ok());
  LossScaler scaler = Make({.loss_scale = 8});
  ASSERT_TRUE(scaler.Restore(dynamic.state()).ok());
  EXPECT_EQ(scaler.scale(), 8);
}

TEST(LossScaler, StatesThatCannotBe) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const LossScalerState good{.scale = 8, .steps = 5, .last_overflow_step = 4, .hysteresis_left = 1};
  LossScaler scaler = Make({});
  EXPECT_TRUE(scaler.Restore(good).ok());
  for (double scale : {0.0, -1.0, nan, HUGE_VAL}) {
    LossScalerState bad = good;
    bad.scale = scale;
    EXPECT_FALSE(scaler.Restore(bad).ok()) << scale;
  }
  const auto refused = [&](int64_t steps, int64_t last, int64_t left) {
    return !scaler
                .Restore({.scale = 8,
                          .steps = steps,
                          .last_overflow_step = last,
                          .hysteresis_left = left})
                .ok();
  };
  EXPECT_TRUE(refused(-1, -1, 1));
  EXPECT_TRUE(refused(5, 5, 1));
  EXPECT_TRUE(refused(5, -2, 1));
  EXPECT_TRUE(refused(0, 0, 1));
  EXPECT_TRUE(refused(5, 4, 0));
  EXPECT_EQ(scaler.state(), good) << "a refused state must change nothing";
}

TEST(LossScaler, ConfigurationsThatCannotWork) {
  const auto message = [](const LossScalerConfig& config) {
    return LossScaler::Create(config).status().message();
  };
  EXPECT_THAT(message({.loss_scale = -1}), HasSubstr("loss_scale is -1"));
  EXPECT_THAT(message({.loss_scale = HUGE_VAL}), HasSubstr("loss_scale is inf"));
  EXPECT_THAT(message({.initial_scale_power = -1}), HasSubstr("initial_scale_power is -1"));
  EXPECT_THAT(message({.initial_scale_power = 127}), HasSubstr("initial_scale_power is 127"));
  EXPECT_THAT(message({.loss_scale_window = 0}), HasSubstr("loss_scale_window is 0"));
  EXPECT_THAT(message({.hysteresis = 0}), HasSubstr("hysteresis is 0"));
  EXPECT_THAT(message({.min_loss_scale = 0}), HasSubstr("min_loss_scale is 0"));
}

}  // namespace
}  // namespace zpp
