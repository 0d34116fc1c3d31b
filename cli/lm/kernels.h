// The arithmetic of the language model's layers, by Eigen, compiled for several instruction sets
// and chosen at run time. Single-threaded, no state: any number of rank threads may call them.
//
// Matrices are row-major: activations are (batch, features).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace zpp::lm {

// A dense layer's weights: (out, in), or (in, out) when `in_out`.
struct DenseShape {
  int64_t in = 0;
  int64_t out = 0;
  bool in_out = false;
};

template <typename T>
struct Kernels {
  // y (batch, out) = x (batch, in) times the weights, plus the bias (out).
  void (*dense)(const DenseShape& shape, const T* weight, const T* bias, int64_t batch, const T* x,
                T* y);
  // dx (batch, in) = dy (batch, out) times the weights.
  void (*dense_input_gradient)(const DenseShape& shape, const T* weight, int64_t batch, const T* dy,
                               T* dx);
  // dweight, laid out like the weights.
  void (*dense_weight_gradient)(const DenseShape& shape, int64_t batch, const T* x, const T* dy,
                                T* dweight);
  // dbias (out) = the sum of dy's rows.
  void (*dense_bias_gradient)(int64_t out, int64_t batch, const T* dy, T* dbias);
  // y = x * sigmoid(1.702 x)
  void (*quick_gelu)(int64_t elems, const T* x, T* y);
  // dy *= the derivative at x.
  void (*quick_gelu_gradient)(int64_t elems, const T* x, T* dy);
  // The sum over rows of -log softmax(logits)[target]; logits (batch, classes) become its gradient
  // times `scale`.
  double (*softmax_loss)(int64_t classes, int64_t batch, const uint8_t* targets, T scale,
                         T* logits);
};

// Instruction sets that this CPU can run and this build has, best first, "base" last.
std::vector<std::string_view> KernelTargets();
// Null for a name that is not among them.
const Kernels<float>* KernelsOf(std::string_view target);
// The best.
const Kernels<float>& FastKernels();
// The same formulas in double.
const Kernels<double>& DoubleKernels();

}  // namespace zpp::lm
