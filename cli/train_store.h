// The language model's weights and gradients, held by a ZeRO engine.
#pragma once

#include <vector>

#include "cli/lm/network.h"
#include "zero/engine.h"

namespace zpp::cli {

// What training computes with: weights of another type than fp32 are widened.
class EngineStore : public lm::ParameterStore<float> {
 public:
  explicit EngineStore(ZeroEngine& engine) : engine_(engine) {}

  Status Gather(int unit) override { return engine_.Gather(unit); }
  Status Release(int unit) override { return engine_.Release(unit); }
  Result<const float*> Weights(int param) override;
  Status AddGradient(int param, std::span<const float> gradient) override;
  Status Poll() override { return engine_.Poll(); }

 private:
  ZeroEngine& engine_;
  std::vector<float> widened_[2];  // a unit has at most two parameters: a matrix and a bias
};

// The fp32 master weights, whole on every rank, for the validation loss.
class MasterWeights : public lm::ParameterStore<float> {
 public:
  // Collective.
  static Result<MasterWeights> Read(ZeroEngine& engine);

  Status Gather(int) override { return {}; }
  Status Release(int) override { return {}; }
  Result<const float*> Weights(int param) override {
    return static_cast<const float*>(values_[static_cast<size_t>(param)].data());
  }
  Status AddGradient(int, std::span<const float>) override {
    return Internal("validation has no gradients");
  }

 private:
  MasterWeights() = default;
  std::vector<std::vector<float>> values_;
};

}  // namespace zpp::cli
