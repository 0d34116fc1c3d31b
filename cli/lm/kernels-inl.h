// Included once by each kernels_*.cc, which defines ZPP_LM_TARGET, a name of its own. Nothing that
// is compiled here may be shared with other files: the linker keeps one copy of an inline function,
// and it could be one that this CPU cannot run. So Eigen's namespace gets the target's name too.
//
// AVX2 is 2.7 times as fast as the base. AVX-512 would multiply matrices no faster on a Zen 4 core,
// and only the activations, a hundredth of the work, twice as fast: it is left out.
#pragma once

#ifndef ZPP_LM_TARGET
#error "define ZPP_LM_TARGET"
#endif

#define ZPP_LM_JOIN_(a, b) a##b
#define ZPP_LM_JOIN(a, b) ZPP_LM_JOIN_(a, b)
#define Eigen ZPP_LM_JOIN(Eigen_, ZPP_LM_TARGET)
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "cli/lm/kernels.h"

namespace zpp::lm::ZPP_LM_TARGET {

using Eigen::Dynamic;
using Index = Eigen::Index;

// Row-major (rows, cols) in our words is a column-major (cols, rows) in Eigen's.
template <typename T>
using Columns = Eigen::Matrix<T, Dynamic, Dynamic, Eigen::ColMajor>;
template <typename T>
using Rows = Eigen::Matrix<T, Dynamic, Dynamic, Eigen::RowMajor>;
template <typename T>
using Vector = Eigen::Matrix<T, Dynamic, 1>;
template <typename T>
using Array = Eigen::Array<T, Dynamic, 1>;

template <typename T>
constexpr T kGelu = static_cast<T>(1.702);

template <typename T>
void Dense(const DenseShape& s, const T* weight, const T* bias, int64_t batch, const T* x, T* y) {
  const Eigen::Map<const Columns<T>> in(x, s.in, batch);
  Eigen::Map<Columns<T>> out(y, s.out, batch);
  out.colwise() = Eigen::Map<const Vector<T>>(bias, s.out);
  if (s.in_out) {
    out.noalias() += Eigen::Map<const Columns<T>>(weight, s.out, s.in) * in;
  } else {
    out.noalias() += Eigen::Map<const Rows<T>>(weight, s.out, s.in) * in;
  }
}

template <typename T>
void DenseInputGradient(const DenseShape& s, const T* weight, int64_t batch, const T* dy, T* dx) {
  const Eigen::Map<const Columns<T>> out(dy, s.out, batch);
  Eigen::Map<Columns<T>> in(dx, s.in, batch);
  if (s.in_out) {
    in.noalias() = Eigen::Map<const Columns<T>>(weight, s.out, s.in).transpose() * out;
  } else {
    in.noalias() = Eigen::Map<const Rows<T>>(weight, s.out, s.in).transpose() * out;
  }
}

template <typename T>
void DenseWeightGradient(const DenseShape& s, int64_t batch, const T* x, const T* dy, T* dweight) {
  const Eigen::Map<const Columns<T>> in(x, s.in, batch);
  const Eigen::Map<const Columns<T>> out(dy, s.out, batch);
  if (s.in_out) {
    Eigen::Map<Columns<T>>(dweight, s.out, s.in).noalias() = out * in.transpose();
  } else {
    Eigen::Map<Rows<T>>(dweight, s.out, s.in).noalias() = out * in.transpose();
  }
}

template <typename T>
void DenseBiasGradient(int64_t out, int64_t batch, const T* dy, T* dbias) {
  Eigen::Map<Vector<T>>(dbias, out) = Eigen::Map<const Columns<T>>(dy, out, batch).rowwise().sum();
}

template <typename T>
void QuickGelu(int64_t elems, const T* x, T* y) {
  const Eigen::Map<const Array<T>> in(x, elems);
  Eigen::Map<Array<T>>(y, elems) = in / (T{1} + (-kGelu<T> * in).exp());
}

template <typename T>
void QuickGeluGradient(int64_t elems, const T* x, T* dy) {
  constexpr Index kTile = 512;  // the sigmoids stay in the first cache
  Eigen::Array<T, Dynamic, 1, 0, kTile, 1> sigmoid;
  for (Index first = 0; first < elems; first += kTile) {
    const Index n = elems - first < kTile ? elems - first : kTile;
    const Eigen::Map<const Array<T>> in(x + first, n);
    sigmoid = (T{1} + (-kGelu<T> * in).exp()).inverse();
    Eigen::Map<Array<T>>(dy + first, n) *= sigmoid * (T{1} + kGelu<T> * in * (T{1} - sigmoid));
  }
}

template <typename T>
double SoftmaxLoss(int64_t classes, int64_t batch, const uint8_t* targets, T scale, T* logits) {
  double loss = 0;
  for (int64_t row = 0; row < batch; ++row) {
    Eigen::Map<Array<T>> z(logits + row * classes, classes);
    const T largest = z.maxCoeff();
    const T target = z[targets[row]] - largest;
    z = (z - largest).exp();
    const T sum = z.sum();
    loss += static_cast<double>(Eigen::numext::log(sum)) - static_cast<double>(target);
    z *= scale / sum;
    z[targets[row]] -= scale;
  }
  return loss;
}

template <typename T>
constexpr Kernels<T> MakeKernels() {
  return {.dense = Dense<T>,
          .dense_input_gradient = DenseInputGradient<T>,
          .dense_weight_gradient = DenseWeightGradient<T>,
          .dense_bias_gradient = DenseBiasGradient<T>,
          .quick_gelu = QuickGelu<T>,
          .quick_gelu_gradient = QuickGeluGradient<T>,
          .softmax_loss = SoftmaxLoss<T>};
}

}  // namespace zpp::lm::ZPP_LM_TARGET
