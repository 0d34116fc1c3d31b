#include "cli/lm/network.h"

#include <algorithm>
#include <cstring>

namespace zpp::lm {

template <typename T>
Result<Network<T>> Network<T>::Create(const LmShape& shape, int64_t max_rows,
                                      const Kernels<T>& kernels) {
  Network network(shape, max_rows, kernels);
  ZPP_RETURN_IF_ERROR(network.Allocate());
  return network;
}

// One allocation, cut at cache lines: a vector loop's first elements are the same in every run.
template <typename T>
Status Network<T>::Allocate() {
  const auto rounded = [](int64_t elems) {
    constexpr int64_t kLine = static_cast<int64_t>(Buffer::kAlignment_bytes / sizeof(T));
    return (elems + kLine - 1) / kLine * kLine;
  };
  std::vector<int64_t> sizes;
  int64_t widest = 0, largest = int64_t{kByteValues} * shape_.embed;
  for (int layer = 0; layer <= shape_.layers; ++layer) {
    const DenseShape dense = shape_.Layer(layer);
    sizes.push_back(rounded(max_rows_ * dense.in));
    sizes.push_back(rounded(max_rows_ * dense.out));
    widest = std::max({widest, dense.in, dense.out});
    largest = std::max(largest, dense.in * dense.out);
  }
  for (int i = 0; i < 2; ++i) sizes.push_back(rounded(max_rows_ * widest));
  sizes.push_back(rounded(largest));
  int64_t sum = 0;
  for (const int64_t size : sizes) sum += size;
  ZPP_ASSIGN_OR_RETURN(memory_, Buffer::Allocate(static_cast<size_t>(sum) * sizeof(T)));
  T* next = reinterpret_cast<T*>(memory_.data());
  size_t taken = 0;
  const auto take = [&] {
    T* const place = next;
    next += sizes[taken++];
    return place;
  };
  for (int layer = 0; layer <= shape_.layers; ++layer) {
    inputs_.push_back(take());
    outputs_.push_back(take());
  }
  delta_ = take();
  next_delta_ = take();
  gradient_ = take();
  return {};
}

template <typename T>
Status Network<T>::Embed(const uint8_t* bytes, int64_t rows, ParameterStore<T>& store) {
  ZPP_RETURN_IF_ERROR(store.Gather(0));
  ZPP_ASSIGN_OR_RETURN(const T* const table, store.Weights(kEmbeddingParam));
  T* out = Input(0);
  const auto row_bytes = static_cast<size_t>(shape_.embed) * sizeof(T);
  for (int64_t i = 0; i < rows * shape_.context; ++i, out += shape_.embed) {
    std::memcpy(out, table + int64_t{bytes[i]} * shape_.embed, row_bytes);
  }
  return store.Release(0);
}

template <typename T>
Status Network<T>::Forward(const uint8_t* bytes, int64_t rows, ParameterStore<T>& store) {
  ZPP_RETURN_IF_ERROR(Embed(bytes, rows, store));
  for (int layer = 0; layer <= shape_.layers; ++layer) {
    const DenseShape dense = shape_.Layer(layer);
    ZPP_RETURN_IF_ERROR(store.Gather(UnitOfLayer(layer)));
    ZPP_ASSIGN_OR_RETURN(const T* const weight, store.Weights(WeightParam(layer)));
    ZPP_ASSIGN_OR_RETURN(const T* const bias, store.Weights(BiasParam(layer)));
    kernels_->dense(dense, weight, bias, rows, Input(layer), Output(layer));
    ZPP_RETURN_IF_ERROR(store.Release(UnitOfLayer(layer)));
    if (layer < shape_.layers) {
      kernels_->quick_gelu(rows * dense.out, Output(layer), Input(layer + 1));
    }
    ZPP_RETURN_IF_ERROR(store.Poll());
  }
  return {};
}

// On entry delta_ is the gradient of this layer's sums, on return of the layer's below.
template <typename T>
Status Network<T>::LayerBackward(int layer, int64_t rows, ParameterStore<T>& store) {
  const DenseShape dense = shape_.Layer(layer);
  ZPP_RETURN_IF_ERROR(store.Gather(UnitOfLayer(layer)));
  ZPP_ASSIGN_OR_RETURN(const T* const weight, store.Weights(WeightParam(layer)));
  kernels_->dense_input_gradient(dense, weight, rows, delta_, next_delta_);
  ZPP_RETURN_IF_ERROR(store.Poll());
  kernels_->dense_bias_gradient(dense.out, rows, delta_, gradient_);
  ZPP_RETURN_IF_ERROR(
      store.AddGradient(BiasParam(layer), {gradient_, static_cast<size_t>(dense.out)}));
  kernels_->dense_weight_gradient(dense, rows, Input(layer), delta_, gradient_);
  ZPP_RETURN_IF_ERROR(store.AddGradient(WeightParam(layer),
                                        {gradient_, static_cast<size_t>(dense.in * dense.out)}));
  ZPP_RETURN_IF_ERROR(store.Release(UnitOfLayer(layer)));
  if (layer > 0) {
    kernels_->quick_gelu_gradient(rows * dense.in, Output(layer - 1), next_delta_);
  }
  std::swap(delta_, next_delta_);
  return store.Poll();
}

template <typename T>
Status Network<T>::EmbedBackward(const uint8_t* bytes, int64_t rows, ParameterStore<T>& store) {
  const int64_t elems = int64_t{kByteValues} * shape_.embed;
  std::fill(gradient_, gradient_ + elems, T{0});
  const T* from = delta_;
  for (int64_t i = 0; i < rows * shape_.context; ++i, from += shape_.embed) {
    T* const to = gradient_ + int64_t{bytes[i]} * shape_.embed;
    for (int k = 0; k < shape_.embed; ++k) to[k] += from[k];
  }
  return store.AddGradient(kEmbeddingParam, {gradient_, static_cast<size_t>(elems)});
}

template <typename T>
Status Network<T>::Backward(const uint8_t* bytes, int64_t rows, ParameterStore<T>& store) {
  std::copy_n(Output(shape_.layers), rows * kByteValues, delta_);
  for (int layer = shape_.layers; layer >= 0; --layer) {
    ZPP_RETURN_IF_ERROR(LayerBackward(layer, rows, store));
  }
  return EmbedBackward(bytes, rows, store);
}

template <typename T>
Result<double> Network<T>::Train(const Batch& batch, double gradient_scale,
                                 ParameterStore<T>& store) {
  const int64_t rows = batch.rows();
  if (rows == 0 || rows > max_rows_) return InvalidArgument("a micro-batch of a wrong size");
  ZPP_RETURN_IF_ERROR(Forward(batch.inputs.data(), rows, store));
  const T scale = static_cast<T>(gradient_scale / static_cast<double>(rows));
  const double loss =
      kernels_->softmax_loss(kByteValues, rows, batch.targets.data(), scale, Output(shape_.layers));
  ZPP_RETURN_IF_ERROR(Backward(batch.inputs.data(), rows, store));
  return loss;
}

template <typename T>
Result<double> Network<T>::SumLoss(const Batch& batch, ParameterStore<T>& store) {
  double loss = 0;
  for (int64_t first = 0; first < batch.rows(); first += max_rows_) {
    const int64_t rows = std::min(max_rows_, batch.rows() - first);
    ZPP_RETURN_IF_ERROR(Forward(batch.inputs.data() + first * batch.context, rows, store));
    loss += kernels_->softmax_loss(kByteValues, rows, batch.targets.data() + first, T{0},
                                   Output(shape_.layers));
  }
  return loss;
}

template class Network<float>;
template class Network<double>;

}  // namespace zpp::lm
