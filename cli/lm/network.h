// Forward and backward pass of the language model over weights that come and go by units.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cli/lm/kernels.h"
#include "cli/lm/shape.h"
#include "cli/lm/text.h"
#include "common/buffer.h"
#include "common/status.h"

namespace zpp::lm {

// Where weights come from and gradients go to. Parameters and units are those of ParametersOf().
template <typename T>
class ParameterStore {
 public:
  virtual ~ParameterStore() = default;
  // Between these two the unit's weights can be read.
  virtual Status Gather(int unit) = 0;
  virtual Status Release(int unit) = 0;
  // Whole, valid until Release() of its unit.
  virtual Result<const T*> Weights(int param) = 0;
  // The whole gradient of this micro-batch; copied or used up on return.
  virtual Status AddGradient(int param, std::span<const T> gradient) = 0;
  // Called between pieces of work.
  virtual Status Poll() { return {}; }
};

// Not thread-safe: one per rank. `store` is used only during calls.
template <typename T>
class Network {
 public:
  // Room for micro-batches of up to max_rows. kResourceExhausted.
  static Result<Network> Create(const LmShape& shape, int64_t max_rows, const Kernels<T>& kernels);

  // Both passes over one micro-batch. Gradients are those of its mean cross-entropy times
  // `gradient_scale`. Returns the sum of the rows' cross-entropies, in nats.
  Result<double> Train(const Batch& batch, double gradient_scale, ParameterStore<T>& store);
  // Forward pass only, any number of rows.
  Result<double> SumLoss(const Batch& batch, ParameterStore<T>& store);

 private:
  Network(const LmShape& shape, int64_t max_rows, const Kernels<T>& kernels)
      : shape_(shape), max_rows_(max_rows), kernels_(&kernels) {}
  Status Allocate();
  T* Input(int layer) { return inputs_[static_cast<size_t>(layer)]; }
  T* Output(int layer) { return outputs_[static_cast<size_t>(layer)]; }

  Status Embed(const uint8_t* bytes, int64_t rows, ParameterStore<T>& store);
  Status Forward(const uint8_t* bytes, int64_t rows, ParameterStore<T>& store);
  Status Backward(const uint8_t* bytes, int64_t rows, ParameterStore<T>& store);
  Status LayerBackward(int layer, int64_t rows, ParameterStore<T>& store);
  Status EmbedBackward(const uint8_t* bytes, int64_t rows, ParameterStore<T>& store);

  LmShape shape_;
  int64_t max_rows_ = 0;
  const Kernels<T>* kernels_ = nullptr;
  Buffer memory_;
  // Per layer, (rows, features): what it reads, and its sums before the activation; the last
  // layer's sums are the logits. In the backward pass delta_ is the gradient of the layer's sums.
  std::vector<T*> inputs_, outputs_;
  T* delta_ = nullptr;
  T* next_delta_ = nullptr;
  T* gradient_ = nullptr;  // of one parameter
};

extern template class Network<float>;
extern template class Network<double>;

}  // namespace zpp::lm
