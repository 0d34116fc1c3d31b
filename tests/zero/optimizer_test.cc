// The steps follow PyTorch's formulas, element by element, against a reference in double that is
// written from the formulas alone; and what the callers may rely on at the edges.
#include "zero/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace zpp {
namespace {

using ::testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Random(size_t elems, double magnitude, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal(0, magnitude);
  std::vector<float> values(elems);
  for (float& x : values) x = static_cast<float>(normal(rng));
  return values;
}

// A few roundings of the terms that were added up.
void ExpectClose(float actual, double expected, double largest_term, const std::string& what) {
  EXPECT_NEAR(actual, expected, 4 * 0x1p-23 * largest_term) << what;
}

struct AdamElement {
  double p, m, v;
  double rate = 0;  // what p changes by per unit of m
};

AdamElement AdamReference(const AdamConfig& c, int64_t t, double g, AdamElement e) {
  if (c.decoupled) {
    e.p -= c.lr * c.weight_decay * e.p;
  } else {
    g += c.weight_decay * e.p;
  }
  e.m = c.beta1 * e.m + (1 - c.beta1) * g;
  e.v = c.beta2 * e.v + (1 - c.beta2) * g * g;
  const double time = static_cast<double>(t);
  const double c1 = c.bias_correction ? 1 - std::pow(c.beta1, time) : 1;
  const double v_hat = c.bias_correction ? e.v / (1 - std::pow(c.beta2, time)) : e.v;
  e.rate = c.lr / c1 / (std::sqrt(v_hat) + c.eps);
  e.p -= e.rate * e.m;
  return e;
}

std::vector<AdamConfig> AdamConfigs() {
  std::vector<AdamConfig> configs;
  for (bool decoupled : {false, true}) {
    for (bool bias_correction : {false, true}) {
      for (double weight_decay : {0.0, 0.1}) {
        configs.push_back({.lr = 0.01,
                           .beta1 = 0.8,
                           .beta2 = 0.95,
                           .eps = 1e-6,
                           .weight_decay = weight_decay,
                           .decoupled = decoupled,
                           .bias_correction = bias_correction});
      }
    }
  }
  configs.push_back({});
  configs.push_back({.beta1 = 0, .beta2 = 0});
  return configs;
}

// Each step of 25 from the state that the step before left.
TEST(Optimizer, AdamFollowsTheFormula) {
  constexpr size_t kElems = 777;
  constexpr float kGradScale = 0.125f;
  for (const AdamConfig& config : AdamConfigs()) {
    std::vector<float> p = Random(kElems, 1, 1), m(kElems), v(kElems);
    for (int64_t t = 1; t <= 25; ++t) {
      const std::vector<float> g = Random(kElems, 3, 100 + static_cast<uint64_t>(t));
      const std::vector<float> p0 = p, m0 = m, v0 = v;
      ASSERT_TRUE(AdamStep(config, t, kGradScale,
                           {.master = p, .m = m, .v = v, .grad = g, .weights_out = {}})
                      .ok());
      for (size_t i = 0; i < kElems; ++i) {
        const double gradient = static_cast<double>(g[i]) * kGradScale;
        const AdamElement e = AdamReference(config, t, gradient, {p0[i], m0[i], v0[i]});
        const std::string what = "element " + std::to_string(i) + " step " + std::to_string(t);
        const double term = std::fabs(m0[i]) + std::fabs(gradient) + std::fabs(p0[i]);
        ExpectClose(m[i], e.m, term, what + " m");
        ExpectClose(v[i], e.v, std::fabs(v0[i]) + term * term, what + " v");
        // The change inherits the rounding of m.
        ExpectClose(p[i], e.p, std::fabs(p0[i]) + e.rate * term, what + " p");
      }
      if (HasFailure()) return;
    }
  }
}

// With the corrections and without eps, the first step is lr in every direction that has a
// gradient, however small: what bias correction is for.
TEST(Optimizer, FirstAdamStepIsTheLearningRate) {
  for (float magnitude : {1e-10f, 1.0f, 1e10f}) {
    std::vector<float> p(100, 2.0f), m(100), v(100), g(100);
    for (size_t i = 0; i < g.size(); ++i) g[i] = (i % 2 == 0 ? 1.0f : -1.0f) * magnitude;
    ASSERT_TRUE(AdamStep({.lr = 0.25, .eps = 0}, 1, 1,
                         {.master = p, .m = m, .v = v, .grad = g, .weights_out = {}})
                    .ok());
    for (size_t i = 0; i < g.size(); ++i) EXPECT_NEAR(p[i], i % 2 == 0 ? 1.75 : 2.25, 1e-6);
  }
}

// The difference between AdamW and Adam: only the latter's decay passes through m and v.
TEST(Optimizer, DecayOfAnElementWithoutGradient) {
  for (bool decoupled : {true, false}) {
    std::vector<float> p = {2.0f}, m = {0.0f}, v = {0.0f};
    const std::vector<float> g = {0.0f};
    const AdamConfig config{.lr = 0.5, .weight_decay = 0.5, .decoupled = decoupled};
    ASSERT_TRUE(
        AdamStep(config, 1, 1, {.master = p, .m = m, .v = v, .grad = g, .weights_out = {}}).ok());
    EXPECT_NEAR(p[0], 1.5, 1e-6);  // 2 * (1 - 0.25), or 2 - lr: both 1.5
    EXPECT_EQ(m[0] == 0, decoupled);
    EXPECT_EQ(v[0] == 0, decoupled);
  }
}

TEST(Optimizer, LateStepsNeedNoCorrection) {
  std::vector<float> results;
  for (bool bias_correction : {true, false}) {
    std::vector<float> p = {1.0f}, m = {0.5f}, v = {0.25f};
    const std::vector<float> g = {0.5f};
    const AdamConfig config{.bias_correction = bias_correction};
    ASSERT_TRUE(AdamStep(config, int64_t{1} << 40, 1,
                         {.master = p, .m = m, .v = v, .grad = g, .weights_out = {}})
                    .ok());
    results.push_back(p[0]);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_NEAR(results[0], 0.999, 1e-6);
}

struct SgdElement {
  double p, b;
};

SgdElement SgdReference(const SgdConfig& c, int64_t t, double g, SgdElement e) {
  g += c.weight_decay * e.p;
  if (c.momentum != 0) {
    e.b = t == 1 ? g : c.momentum * e.b + (1 - c.dampening) * g;
    g = c.nesterov ? g + c.momentum * e.b : e.b;
  }
  e.p -= c.lr * g;
  return e;
}

TEST(Optimizer, SgdFollowsTheFormula) {
  const SgdConfig configs[] = {{},
                               {.lr = 0.1, .weight_decay = 0.01},
                               {.lr = 0.1, .momentum = 0.9},
                               {.lr = 0.1, .momentum = 0.9, .dampening = 0.3},
                               {.lr = 0.1, .momentum = 0.5, .weight_decay = 0.2},
                               {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}};
  constexpr size_t kElems = 333;
  for (const SgdConfig& config : configs) {
    std::vector<float> p = Random(kElems, 1, 1);
    // What it holds before the first step must not matter.
    std::vector<float> b(config.momentum == 0 ? 0 : kElems, kNaN);
    std::vector<SgdElement> want(kElems);
    for (size_t i = 0; i < kElems; ++i) want[i] = {p[i], 0};
    for (int64_t t = 1; t <= 10; ++t) {
      const std::vector<float> g = Random(kElems, 2, 50 + static_cast<uint64_t>(t));
      ASSERT_TRUE(
          SgdStep(config, t, 0.5f, {.master = p, .momentum = b, .grad = g, .weights_out = {}})
              .ok());
      for (size_t i = 0; i < kElems; ++i) {
        want[i] = SgdReference(config, t, 0.5 * static_cast<double>(g[i]), want[i]);
        EXPECT_NEAR(p[i], want[i].p, 1e-5) << "element " << i << " step " << t;
        const double momentum = b.empty() ? want[i].b : static_cast<double>(b[i]);
        EXPECT_NEAR(momentum, want[i].b, 1e-5) << "element " << i << " step " << t;
      }
      if (HasFailure()) return;
    }
  }
}

TEST(Optimizer, NonfiniteGradientSpoilsItsElementOnly) {
  for (float bad : {kNaN, kInfinity, -kInfinity}) {
    for (size_t at = 0; at < 40; ++at) {
      std::vector<float> p = Random(40, 1, 1), m(40), v(40), clean_p = p, clean_m(40), clean_v(40);
      std::vector<float> g = Random(40, 1, 2);
      ASSERT_TRUE(
          AdamStep({}, 1, 1,
                   {.master = clean_p, .m = clean_m, .v = clean_v, .grad = g, .weights_out = {}})
              .ok());
      g[at] = bad;
      ASSERT_TRUE(
          AdamStep({}, 1, 1, {.master = p, .m = m, .v = v, .grad = g, .weights_out = {}}).ok());
      for (size_t i = 0; i < 40; ++i) {
        if (i == at) {
          EXPECT_TRUE(std::isnan(p[i]));
        } else {
          EXPECT_EQ(p[i], clean_p[i]) << i;
          EXPECT_EQ(v[i], clean_v[i]) << i;
        }
      }
    }
  }
}

TEST(Optimizer, NothingToDo) {
  EXPECT_TRUE(
      AdamStep({}, 1, 1, {.master = {}, .m = {}, .v = {}, .grad = {}, .weights_out = {}}).ok());
  EXPECT_TRUE(
      SgdStep({}, 1, 1, {.master = {}, .momentum = {}, .grad = {}, .weights_out = {}}).ok());
}

TEST(Optimizer, ConfigurationsThatCannotWork) {
  const auto message = [](const auto& config) { return Validate(config).message(); };
  EXPECT_THAT(message(AdamConfig{.lr = -1}), HasSubstr("lr is -1"));
  EXPECT_THAT(message(AdamConfig{.lr = HUGE_VAL}), HasSubstr("lr is inf"));
  EXPECT_THAT(message(AdamConfig{.beta1 = 1}), HasSubstr("beta1 is 1"));
  EXPECT_THAT(message(AdamConfig{.beta2 = -0.5}), HasSubstr("beta2 is -0.5"));
  EXPECT_THAT(message(AdamConfig{.beta2 = std::nan("")}), HasSubstr("beta2 is nan"));
  EXPECT_THAT(message(AdamConfig{.eps = -1e-8}), HasSubstr("eps is -1e-08"));
  EXPECT_THAT(message(AdamConfig{.weight_decay = -1}), HasSubstr("weight_decay is -1"));
  EXPECT_THAT(message(SgdConfig{.momentum = -1}), HasSubstr("momentum is -1"));
  EXPECT_THAT(message(SgdConfig{.dampening = HUGE_VAL}), HasSubstr("dampening is inf"));
  EXPECT_THAT(message(SgdConfig{.nesterov = true}), HasSubstr("nesterov"));
  EXPECT_THAT(message(SgdConfig{.momentum = 0.9, .dampening = 0.1, .nesterov = true}),
              HasSubstr("nesterov"));
  EXPECT_TRUE(Validate(AdamConfig{.lr = 0, .beta1 = 0, .beta2 = 0, .eps = 0}).ok());
  EXPECT_TRUE(Validate(SgdConfig{.lr = 0}).ok());
}

// Refused before anything is written.
TEST(Optimizer, CallsThatCannotWork) {
  std::vector<float> p(10, 1.0f), m(10), v(10), shorter(9);
  const std::vector<float> g(10, 1.0f);
  std::vector<uint16_t> weights(10);
  const auto adam = [&](int64_t step, const AdamRange& range) {
    const Status status = AdamStep({}, step, 1, range);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(p, std::vector<float>(10, 1.0f));
    return status.message();
  };
  const AdamRange good{.master = p, .m = m, .v = v, .grad = g, .weights_out = {}};
  EXPECT_THAT(adam(0, good), HasSubstr("steps count from 1"));
  AdamRange range = good;
  range.m = shorter;
  EXPECT_THAT(adam(1, range), HasSubstr("m has 9 elements"));
  range = good;
  range.v = shorter;
  EXPECT_THAT(adam(1, range), HasSubstr("v has 9 elements"));
  range = good;
  range.grad = shorter;
  EXPECT_THAT(adam(1, range), HasSubstr("the gradient has 9 elements"));
  range = good;
  range.weights_out = {DType::kBF16, weights.data(), 9};
  EXPECT_THAT(adam(1, range), HasSubstr("weights_out has 9 elements"));
  range.weights_out = {DType::kBF16, weights.data(), -1};
  EXPECT_THAT(adam(1, range), HasSubstr("weights_out has -1 elements"));
  range.weights_out = {DType::kBF16, nullptr, 10};
  EXPECT_THAT(adam(1, range), HasSubstr("weights_out has no data"));
  range.weights_out = {DType::kByte, weights.data(), 10};
  EXPECT_THAT(adam(1, range), HasSubstr("fp32, fp16 or bf16"));
  const Status sgd =
      SgdStep({.momentum = 0.9}, 1, 1, {.master = p, .momentum = {}, .grad = g, .weights_out = {}});
  EXPECT_THAT(sgd.message(), HasSubstr("momentum has 0 elements"));
}

}  // namespace
}  // namespace zpp
