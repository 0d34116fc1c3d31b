// The language model against a naive one in double, and its gradients against finite differences.
#include "cli/lm/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace zpp::lm {
namespace {

// Holds all weights; refuses to show those of units that are not gathered.
template <typename T>
class HeldParameters : public ParameterStore<T> {
 public:
  HeldParameters(const LmShape& shape, uint64_t seed) : specs_(ParametersOf(shape)) {
    for (size_t i = 0; i < specs_.size(); ++i) {
      std::vector<float> start(static_cast<size_t>(ElemsOf(specs_[i])));
      InitialWeights(shape, seed, static_cast<int>(i), start);
      // Biases of zero would hide a bias that is forgotten.
      for (size_t k = 0; specs_[i].shape.size() == 1 && k < start.size(); ++k)
        start[k] = 0.01f * static_cast<float>(k % 7) - 0.03f;
      values_.emplace_back(start.begin(), start.end());
      gradients_.emplace_back(start.size(), std::nan(""));
    }
  }
  Status Gather(int unit) override {
    ++open_[unit];
    return {};
  }
  Status Release(int unit) override {
    --open_[unit];
    return {};
  }
  Result<const T*> Weights(int param) override {
    if (open_[specs_[static_cast<size_t>(param)].unit] != 1) return Internal("not gathered");
    return values_[static_cast<size_t>(param)].data();
  }
  Status AddGradient(int param, std::span<const T> gradient) override {
    auto& place = gradients_[static_cast<size_t>(param)];
    if (gradient.size() != place.size()) return Internal("gradient of a wrong size");
    place.assign(gradient.begin(), gradient.end());
    order_.push_back(param);
    return {};
  }
  bool AllReleased() const {
    for (const auto& [unit, count] : open_) {
      if (count != 0) return false;
    }
    return true;
  }
  std::vector<ParamSpec> specs_;
  std::vector<std::vector<T>> values_, gradients_;
  std::vector<int> order_;

 private:
  std::map<int, int> open_;
};

Batch TextBatch(const LmShape& shape, int64_t rows) {
  Batch batch;
  batch.context = shape.context;
  for (int64_t i = 0; i < rows * shape.context; ++i)
    batch.inputs.push_back(static_cast<uint8_t>(i * 37 % 251));
  for (int64_t i = 0; i < rows; ++i) batch.targets.push_back(static_cast<uint8_t>(255 - i * 11));
  return batch;
}

double WeightOf(const LmShape& shape, const HeldParameters<double>& held, int layer, int64_t to,
                int64_t from) {
  const DenseShape dense = shape.Layer(layer);
  const auto& weights = held.values_[static_cast<size_t>(WeightParam(layer))];
  return weights[static_cast<size_t>(shape.in_out ? from * dense.out + to : to * dense.in + from)];
}

double NaiveLoss(const LmShape& shape, const HeldParameters<double>& held, const Batch& batch) {
  double sum = 0;
  for (int64_t row = 0; row < batch.rows(); ++row) {
    std::vector<double> x;
    for (int i = 0; i < shape.context; ++i) {
      const int byte = batch.inputs[static_cast<size_t>(row * shape.context + i)];
      for (int k = 0; k < shape.embed; ++k)
        x.push_back(held.values_[0][static_cast<size_t>(byte * shape.embed + k)]);
    }
    for (int layer = 0; layer <= shape.layers; ++layer) {
      std::vector<double> y = held.values_[static_cast<size_t>(BiasParam(layer))];
      for (size_t to = 0; to < y.size(); ++to) {
        for (size_t from = 0; from < x.size(); ++from)
          y[to] += x[from] * WeightOf(shape, held, layer, static_cast<int64_t>(to),
                                      static_cast<int64_t>(from));
        if (layer < shape.layers) y[to] /= 1 + std::exp(-1.702 * y[to]);
      }
      x = y;
    }
    double odds = 0;
    for (const double logit : x) odds += std::exp(logit);
    sum += std::log(odds) - x[batch.targets[static_cast<size_t>(row)]];
  }
  return sum;
}

class LmNetwork : public testing::TestWithParam<bool> {
 protected:
  LmNetwork() { shape_.in_out = GetParam(); }
  LmShape shape_{.context = 3, .embed = 5, .hidden = 19, .layers = 2};
};

TEST_P(LmNetwork, LossIsTheNaiveOne) {
  HeldParameters<double> held(shape_, 7);
  const Batch batch = TextBatch(shape_, 9);
  for (const int64_t max_rows : {1, 4, 9, 20}) {
    auto network = Network<double>::Create(shape_, max_rows, DoubleKernels());
    ASSERT_TRUE(network.ok());
    const auto loss = network->SumLoss(batch, held);
    ASSERT_TRUE(loss.ok()) << loss.status().ToString();
    EXPECT_NEAR(*loss, NaiveLoss(shape_, held, batch), 1e-9);
    EXPECT_TRUE(held.AllReleased());
  }
}

TEST_P(LmNetwork, GradientsAreThoseOfFiniteDifferences) {
  HeldParameters<double> held(shape_, 3);
  const Batch batch = TextBatch(shape_, 9);
  auto network = Network<double>::Create(shape_, 9, DoubleKernels());
  ASSERT_TRUE(network.ok());
  constexpr double kScale = 1024;  // a loss scale
  const auto loss = network->Train(batch, kScale, held);
  ASSERT_TRUE(loss.ok()) << loss.status().ToString();
  EXPECT_NEAR(*loss, NaiveLoss(shape_, held, batch), 1e-9);
  EXPECT_TRUE(held.AllReleased());
  int checked = 0;
  for (size_t param = 0; param < held.values_.size(); ++param) {
    for (size_t i = 0; i < held.values_[param].size(); i += 13) {
      double& value = held.values_[param][i];
      const double before = value, step = 1e-5;
      value = before + step;
      const double above = NaiveLoss(shape_, held, batch);
      value = before - step;
      const double below = NaiveLoss(shape_, held, batch);
      value = before;
      const double expected = (above - below) / (2 * step) / 9 * kScale;
      ASSERT_NEAR(held.gradients_[param][i], expected, 1e-6 * kScale)
          << held.specs_[param].name << " " << i;
      ++checked;
    }
  }
  EXPECT_GT(checked, 500);
}

TEST_P(LmNetwork, EachGradientOnceTheLastLayersFirst) {
  HeldParameters<double> held(shape_, 3);
  auto network = Network<double>::Create(shape_, 4, DoubleKernels());
  ASSERT_TRUE(network->Train(TextBatch(shape_, 4), 1, held).ok());
  EXPECT_THAT(held.order_, testing::ElementsAre(6, 5, 4, 3, 2, 1, 0));
}

TEST_P(LmNetwork, EveryTargetAgreesWithDouble) {
  LmShape shape{.context = 16, .embed = 32, .hidden = 100, .layers = 2, .in_out = GetParam()};
  HeldParameters<double> exact(shape, 5);
  const Batch batch = TextBatch(shape, 23);
  auto reference = Network<double>::Create(shape, 23, DoubleKernels());
  const double expected = *reference->Train(batch, 1, exact);
  EXPECT_EQ(KernelTargets().back(), "base");
  for (const std::string_view target : KernelTargets()) {
    HeldParameters<float> held(shape, 5);
    auto network = Network<float>::Create(shape, 23, *KernelsOf(target));
    EXPECT_NEAR(*network->Train(batch, 1, held), expected, 1e-5 * expected) << target;
    for (size_t param = 0; param < held.values_.size(); ++param) {
      double error = 0, size = 0;
      for (size_t i = 0; i < held.gradients_[param].size(); ++i) {
        const double want = exact.gradients_[param][i];
        error += std::pow(held.gradients_[param][i] - want, 2);
        size += want * want;
      }
      EXPECT_LT(std::sqrt(error), 1e-5 * std::sqrt(size)) << target << " " << param;
      EXPECT_GT(size, 0) << param;
    }
  }
}

TEST_P(LmNetwork, MicroBatchesOfAWrongSizeAreRefused) {
  HeldParameters<double> held(shape_, 3);
  auto network = Network<double>::Create(shape_, 4, DoubleKernels());
  EXPECT_FALSE(network->Train(TextBatch(shape_, 5), 1, held).ok());
  EXPECT_FALSE(network->Train(TextBatch(shape_, 0), 1, held).ok());
}

INSTANTIATE_TEST_SUITE_P(Layouts, LmNetwork, testing::Bool(),
                         [](const auto& layout) { return layout.param ? "InOut" : "OutIn"; });

TEST(LmKernels, UnknownTargetsAreNull) {
  EXPECT_EQ(KernelsOf("sse9"), nullptr);
  EXPECT_EQ(KernelsOf(KernelTargets().front()), &FastKernels());
}

TEST(LmKernels, SoftmaxOfHugeLogitsIsFinite) {
  std::vector<float> logits(512, -80.0f);
  logits[3] = 1e4f;
  logits[256 + 5] = 3e38f;
  const uint8_t targets[] = {3, 7};
  const double loss = FastKernels().softmax_loss(256, 2, targets, 1.0f, logits.data());
  EXPECT_GT(loss, 1e38);
  for (const float x : logits) EXPECT_TRUE(std::isfinite(x));
  EXPECT_FLOAT_EQ(logits[256 + 7], -1);
}

}  // namespace
}  // namespace zpp::lm
