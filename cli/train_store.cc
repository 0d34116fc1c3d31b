#include "cli/train_store.h"

namespace zpp::cli {

Result<const float*> EngineStore::Weights(int param) {
  const ConstVec weights = engine_.Weights(param);
  if (weights.data == nullptr) {
    return Internal("weights of parameter " + std::to_string(param) + " are not there");
  }
  if (weights.dtype == DType::kF32) return static_cast<const float*>(weights.data);
  const bool is_bias = engine_.params()[static_cast<size_t>(param)].shape.size() == 1;
  std::vector<float>& out = widened_[is_bias ? 1 : 0];
  out.resize(static_cast<size_t>(weights.elems));
  const auto bytes = static_cast<size_t>(weights.elems * SizeOf(weights.dtype));
  ZPP_RETURN_IF_ERROR(Decode(QuantSpec::None(weights.dtype),
                             {static_cast<const std::byte*>(weights.data), bytes},
                             {DType::kF32, out.data(), weights.elems}));
  return static_cast<const float*>(out.data());
}

Status EngineStore::AddGradient(int param, std::span<const float> gradient) {
  return engine_.AddGradient(param,
                             {DType::kF32, gradient.data(), static_cast<int64_t>(gradient.size())});
}

Result<MasterWeights> MasterWeights::Read(ZeroEngine& engine) {
  MasterWeights weights;
  for (const ParamSpec& param : engine.params()) {
    weights.values_.emplace_back(static_cast<size_t>(lm::ElemsOf(param)));
    const int index = static_cast<int>(weights.values_.size()) - 1;
    ZPP_RETURN_IF_ERROR(engine.ReadWeights(index, weights.values_.back()));
  }
  return weights;
}

}  // namespace zpp::cli
