// Error feedback and the carry-over of its residuals together, as the engine uses them.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "quant/error_feedback.h"
#include "zero/error_control.h"

namespace zpp {
namespace {

constexpr int64_t kRow_elems = 512;

struct Setting {
  Code code = Code::kSqrt;
  ResidualType residual = ResidualType::kBF16;
  // The plain rule "times the clip coefficient" shrinks much faster: into the subnormals.
  bool plain_clip = false;
  bool no_carry = false;  // residuals as they are
};
std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  for (Code code : {Code::kLinear, Code::kSqrt}) {
    for (ResidualType type : {ResidualType::kF32, ResidualType::kBF16, ResidualType::kInt8}) {
      for (bool plain_clip : {false, true}) settings.push_back({code, type, plain_clip});
    }
  }
  return settings;
}
std::string Name(const Setting& setting) {
  return std::string(setting.code == Code::kSqrt ? "sqrt" : "linear") + " residual " +
         std::to_string(static_cast<int>(setting.residual)) +
         (setting.plain_clip ? " plain" : " mean");
}

std::vector<float> Normal(int64_t elems, float deviation, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(static_cast<size_t>(elems));
  for (float& value : values) value = normal(random);
  return values;
}

double Norm(const std::vector<float>& values) {
  double sum = 0;
  for (float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return Norm(difference);
}

// One sender with feedback.
class Sender {
 public:
  Sender(const Setting& setting, int64_t elems) : setting_(setting) {
    Result<ErrorFeedback> feedback = ErrorFeedback::Create(elems, setting.residual);
    EXPECT_TRUE(feedback.ok());
    feedback_ = std::move(feedback).value();
  }
  // What arrives of x in a step that is then clipped by `clip`.
  std::vector<float> Step(const std::vector<float>& x, double clip) {
    const QuantSpec spec = QuantSpec::Int4(setting_.code);
    const int64_t elems = static_cast<int64_t>(x.size());
    std::vector<std::byte> payload(static_cast<size_t>(PayloadBytes(spec, elems)));
    EXPECT_TRUE(feedback_.Encode(spec, 0, {DType::kF32, x.data(), elems}, payload).ok());
    const float carried = carry_.Factor(clip, 1);
    float factor = setting_.plain_clip ? static_cast<float>(clip) : carried;
    if (setting_.no_carry) factor = 1;
    EXPECT_TRUE(feedback_.Scale(factor).ok());
    std::vector<float> arrived(x.size());
    EXPECT_TRUE(Decode(spec, payload, {DType::kF32, arrived.data(), elems}).ok());
    return arrived;
  }
  std::vector<float> residual() const {
    std::vector<float> residual(static_cast<size_t>(feedback_.elems()));
    EXPECT_TRUE(feedback_.Read(residual).ok());
    return residual;
  }

 private:
  Setting setting_;
  ErrorFeedback feedback_;
  ResidualCarry carry_;
};

bool AllFinite(const std::vector<float>& values) {
  for (float value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

TEST(FeedbackDecay, ARowWhoseGradientStoppedEndsInZeros) {
  const std::vector<float> stopped(kRow_elems, 0.0f);
  for (const Setting& setting : Settings()) {
    SCOPED_TRACE(Name(setting));
    Sender sender(setting, kRow_elems);
    for (uint32_t step = 0; step < 5; ++step) (void)sender.Step(Normal(kRow_elems, 1, step), 0.3);
    ASSERT_GT(Norm(sender.residual()), 0.01);  // there is something to decay
    std::vector<float> arrived;
    for (int step = 0; step < 60; ++step) {
      arrived = sender.Step(stopped, 0.3);
      ASSERT_TRUE(AllFinite(arrived)) << step;
      ASSERT_TRUE(AllFinite(sender.residual())) << step;
    }
    EXPECT_EQ(arrived, stopped);
    EXPECT_EQ(sender.residual(), stopped);
  }
}

// The same for gradients of every magnitude down to the subnormals, and beside a live row.
TEST(FeedbackDecay, WhateverTheMagnitude) {
  for (float magnitude : {0x1p-149f, 0x1p-126f, 1e-30f, 1e-12f, 1e12f, 1e37f}) {
    for (const Setting& setting : Settings()) {
      SCOPED_TRACE(Name(setting) + " " + std::to_string(std::log2(magnitude)));
      Sender sender(setting, kRow_elems);
      std::vector<float> x = Normal(kRow_elems, 1, 7);
      for (float& value : x) value = std::fmin(std::fmax(value, -4.0f), 4.0f) * magnitude;
      (void)sender.Step(x, 0.3);
      std::fill(x.begin(), x.begin() + kRow_elems / 2, 0.0f);
      std::vector<float> arrived;
      for (int step = 0; step < 150; ++step) {
        arrived = sender.Step(x, 0.3);
        ASSERT_TRUE(AllFinite(arrived)) << step;
      }
      for (size_t i = 0; i < kRow_elems / 2; ++i) ASSERT_EQ(arrived[i], 0.0f) << i;
    }
  }
}

// The step after a bad batch: its residual, a thousand times a gradient, must not be applied.
TEST(FeedbackDecay, ABadBatchDoesNotPoisonTheNextStep) {
  const auto error_after = [](const Setting& setting) {
    Sender sender(setting, 4096);
    for (uint32_t step = 0; step < 20; ++step) (void)sender.Step(Normal(4096, 1, step), 0.9);
    (void)sender.Step(Normal(4096, 1000, 100), 0.0009);
    const std::vector<float> x = Normal(4096, 1, 101);
    return Distance(sender.Step(x, 0.9), x) / Norm(x);
  };
  for (const Setting& setting : Settings()) {
    SCOPED_TRACE(Name(setting));
    EXPECT_LT(error_after(setting), 0.25);
  }
  EXPECT_GT(error_after({.no_carry = true}), 10);  // it does matter
}

// In applied units what was not delivered is one residual, not something that grows with time.
TEST(FeedbackDecay, AppliedSumsStayTogether) {
  const auto error_of = [](const Setting& setting) {
    Sender sender(setting, 4096);
    std::mt19937 random(3);
    std::uniform_real_distribution<double> clips(0.5, 1);
    const std::vector<float> drift = Normal(4096, 0.3f, 77);
    std::vector<float> want(4096), got(4096);
    for (uint32_t step = 0; step < 200; ++step) {
      std::vector<float> x = Normal(4096, 1, step);
      for (size_t i = 0; i < x.size(); ++i) x[i] += drift[i];
      const double clip = clips(random);
      const std::vector<float> arrived = sender.Step(x, clip);
      for (size_t i = 0; i < x.size(); ++i) {
        want[i] += static_cast<float>(clip) * x[i];
        got[i] += static_cast<float>(clip) * arrived[i];
      }
    }
    return Distance(got, want) / Norm(want);
  };
  EXPECT_LT(error_of({}), 0.02);
  EXPECT_LT(error_of({}), 0.8 * error_of({.plain_clip = true}));
}

}  // namespace
}  // namespace zpp
