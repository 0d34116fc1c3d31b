// Stochastic rounding: unbiased, and the same whatever the chunking.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "quant/noise.h"
#include "tests/quant/codec_cases.h"

namespace zpp::testing {
namespace {

using ::testing::ElementsAre;

std::vector<QuantSpec> StochasticSpecs() {
  std::vector<QuantSpec> specs;
  constexpr int32_t kBlocks[] = {64};
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    if (spec.rounding == Rounding::kStochastic) specs.push_back(spec);
  }
  return specs;
}

// The known answers that Random123 publishes for Philox4x32 with 7 rounds.
TEST(Stochastic, PhiloxHasItsKnownAnswers) {
  const PhiloxBlock zeros = Philox(0, 0, 0);
  EXPECT_THAT(zeros.word, ElementsAre(0x5f6fb709u, 0x0d893f64u, 0x4f121f81u, 0x4f730a48u));
  const PhiloxBlock ones = Philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0});
  EXPECT_THAT(ones.word, ElementsAre(0x5207ddc2u, 0x45165e59u, 0x4d8ee751u, 0x8c52f662u));
}

// The mean over many steps is the input: within 5 standard errors for each element, 1 on average.
TEST(Stochastic, MeanIsTheInput) {
  constexpr int kSteps = 4000;
  const std::vector<float> x = Make(Pattern::kNormal, 64, 11);
  for (const QuantSpec& spec : StochasticSpecs()) {
    std::vector<double> sum(x.size()), squares(x.size());
    for (uint64_t step = 0; step < kSteps; ++step) {
      const std::vector<float> y =
          DecodeF32(spec, EncodeF32(spec, x, {.seed = 5, .step = step}), 64);
      for (size_t i = 0; i < x.size(); ++i) {
        sum[i] += y[i];
        squares[i] += static_cast<double>(y[i]) * y[i];
      }
    }
    double chi = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double mean = sum[i] / kSteps;
      const double variance = squares[i] / kSteps - mean * mean;
      // An element that hardly ever leaves its level has no normal distribution: allow one event.
      const double step = ErrorBound(spec, 3.0f);
      const double error = std::sqrt(std::fmax(variance, 0) / kSteps) + step / kSteps;
      const double sigmas = (mean - x[i]) / error;
      EXPECT_LT(std::fabs(sigmas), 5.0) << ToString(spec) << " element " << i;
      chi += sigmas * sigmas;
    }
    EXPECT_LT(chi / static_cast<double>(x.size()), 1.6) << ToString(spec);
  }
}

// The mean over many elements: a bias of a thousandth of a step would show.
TEST(Stochastic, SumOverManyElementsIsUnbiased) {
  constexpr int64_t kElems = 1 << 20;
  std::vector<float> x(kElems, 0.3f);
  for (size_t i = 0; i < x.size(); i += 64) x[i] = 7.0f;  // scale 1 for linear int4
  const QuantSpec spec = *ParseQuantSpec("int4/64/linear/stochastic");
  const std::vector<float> y = DecodeF32(spec, EncodeF32(spec, x, {.seed = 1}), kElems);
  double sum = 0;
  int64_t count = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    if (i % 64 == 0) {
      EXPECT_EQ(y[i], 7.0f);
    } else {
      EXPECT_TRUE(y[i] == 0.0f || y[i] == 1.0f);
      sum += y[i];
      ++count;
    }
  }
  EXPECT_NEAR(sum / static_cast<double>(count), 0.3,
              5 * std::sqrt(0.21 / static_cast<double>(count)));
}

// Any cut on the block grid gives the same codes.
TEST(Stochastic, IndependentOfChunking) {
  const std::vector<float> x = Make(Pattern::kNormal, 4096, 3);
  for (const QuantSpec& spec : StochasticSpecs()) {
    const std::vector<float> whole =
        DecodeF32(spec, EncodeF32(spec, x, {.seed = 9, .step = 2, .first_elem = 100}), 4096);
    std::vector<float> pieces;
    for (size_t at = 0, length = 64; at < x.size(); at += length, length += 64) {
      length = std::min(length, x.size() - at);
      const auto piece = std::span(x).subspan(at, length);
      const NoiseKey noise{.seed = 9, .step = 2, .first_elem = 100 + at};
      const std::vector<float> y =
          DecodeF32(spec, EncodeF32(spec, piece, noise), static_cast<int64_t>(length));
      pieces.insert(pieces.end(), y.begin(), y.end());
    }
    EXPECT_EQ(Bits(pieces), Bits(whole)) << ToString(spec);
  }
}

// Values on a level stay there: no noise is added to what needs no rounding.
TEST(Stochastic, LevelsAreFixedPoints) {
  std::vector<float> x(64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i % 15) - 7);
  const QuantSpec spec = *ParseQuantSpec("int4/64/linear/stochastic");
  EXPECT_EQ(DecodeF32(spec, EncodeF32(spec, x, {.seed = 4}), 64), x);
}

TEST(Stochastic, SeedAndStepMatter) {
  const std::vector<float> x = Make(Pattern::kNormal, 4096, 3);
  const QuantSpec spec = *ParseQuantSpec("int8/256/stochastic");
  EXPECT_NE(EncodeF32(spec, x, {.seed = 1}), EncodeF32(spec, x, {.seed = 2}));
  EXPECT_NE(EncodeF32(spec, x, {.step = 1}), EncodeF32(spec, x, {.step = 2}));
}

}  // namespace
}  // namespace zpp::testing
