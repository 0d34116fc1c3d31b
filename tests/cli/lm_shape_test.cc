// The model's parameters and where they start.
#include "cli/lm/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace zpp::lm {
namespace {

using testing::HasSubstr;

TEST(LmShape, PresetsHaveTheSizesTheyPromise) {
  EXPECT_EQ(NamedShape("small")->elems(), 664'832);
  EXPECT_LT(NamedShape("tiny")->elems(), 40'000);
  EXPECT_GE(NamedShape("20m")->elems(), 20'000'000);
  EXPECT_EQ(*NamedShape("small"), LmShape{});
  EXPECT_THAT(NamedShape("huge").status().message(), HasSubstr("tiny, small, 20m"));
}

TEST(LmShape, ParametersAreNamedGroupedAndCounted) {
  for (const bool in_out : {false, true}) {
    const LmShape shape{.context = 2, .embed = 4, .hidden = 6, .layers = 2, .in_out = in_out};
    const auto params = ParametersOf(shape);
    ASSERT_EQ(params.size(), 7u);
    int64_t sum = 0;
    std::set<std::string> names;
    for (const ParamSpec& param : params) {
      sum += ElemsOf(param);
      names.insert(param.name);
    }
    EXPECT_EQ(sum, shape.elems());
    EXPECT_EQ(names.size(), params.size());
    const auto& first = params[static_cast<size_t>(WeightParam(0))];
    EXPECT_EQ(first.shape, in_out ? (std::vector<int64_t>{8, 6}) : (std::vector<int64_t>{6, 8}));
    const auto& head = params[static_cast<size_t>(WeightParam(2))];
    EXPECT_EQ(head.name, "head.weight");
    EXPECT_EQ(head.unit, 3);
    EXPECT_EQ(params[static_cast<size_t>(BiasParam(2))].shape, std::vector<int64_t>{256});
  }
}

TEST(LmShape, SizesOutOfRangeAreNamed) {
  EXPECT_TRUE(CheckShape({}).ok());
  EXPECT_THAT(CheckShape({.context = 0}).message(), HasSubstr("--context"));
  EXPECT_THAT(CheckShape({.embed = -1}).message(), HasSubstr("--embed"));
  EXPECT_THAT(CheckShape({.hidden = 1 << 20}).message(), HasSubstr("--hidden"));
  EXPECT_THAT(CheckShape({.layers = 0}).message(), HasSubstr("--layers"));
  EXPECT_THAT(CheckShape({.hidden = 65536, .layers = 200}).message(), HasSubstr("parameters"));
}

std::vector<float> Start(const LmShape& shape, uint64_t seed, int param) {
  std::vector<float> out(
      static_cast<size_t>(ElemsOf(ParametersOf(shape)[static_cast<size_t>(param)])), NAN);
  InitialWeights(shape, seed, param, out);
  return out;
}

TEST(LmShape, StartIsNormalOfTheRightSizeAndFollowsTheSeed) {
  const LmShape shape;
  for (int param = 0; param < static_cast<int>(ParametersOf(shape).size()); ++param) {
    const std::vector<float> values = Start(shape, 1, param);
    EXPECT_EQ(values, Start(shape, 1, param));
    double sum = 0, squares = 0;
    for (const float x : values) {
      sum += x;
      squares += double{x} * x;
    }
    const auto n = static_cast<double>(values.size());
    const bool bias = ParametersOf(shape)[static_cast<size_t>(param)].shape.size() == 1;
    if (bias) {
      EXPECT_EQ(squares, 0);
      continue;
    }
    EXPECT_NE(values, Start(shape, 2, param));
    const double deviation = std::sqrt(squares / n);
    EXPECT_LT(std::abs(sum / n), 5 * deviation / std::sqrt(n));
    if (param == kEmbeddingParam) {
      EXPECT_NEAR(deviation, 1, 0.03);
    }
  }
}

TEST(LmShape, TheOtherLayoutHoldsTheSameNumbers) {
  LmShape shape{.context = 2, .embed = 3, .hidden = 5, .layers = 1};
  const std::vector<float> plain = Start(shape, 9, WeightParam(0));
  shape.in_out = true;
  const std::vector<float> turned = Start(shape, 9, WeightParam(0));
  for (size_t to = 0; to < 5; ++to) {
    for (size_t from = 0; from < 6; ++from) EXPECT_EQ(plain[to * 6 + from], turned[from * 5 + to]);
  }
}

}  // namespace
}  // namespace zpp::lm
