// One optimizer step, a register at a time: the operations of optimizer_scalar.cc in their order.
#if defined(ZPP_ZERO_SIMD_UPDATE) == defined(HWY_TARGET_TOGGLE)
#ifdef ZPP_ZERO_SIMD_UPDATE
#undef ZPP_ZERO_SIMD_UPDATE
#else
#define ZPP_ZERO_SIMD_UPDATE
#endif

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "zero/internal/optimizer_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace zpp::optimizer::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Works on registers of D: whole ones, and single elements at the end of a range.
template <class D>
class AdamUpdate {
  using V = hn::Vec<D>;

 public:
  HWY_INLINE explicit AdamUpdate(const AdamScalars& s)
      : has_l2_(s.l2 != 0),
        grad_scale_(hn::Set(D(), s.grad_scale)),
        l2_(hn::Set(D(), s.l2)),
        decay_(hn::Set(D(), s.decay)),
        mean_rate_(hn::Set(D(), s.mean_rate)),
        square_keep_(hn::Set(D(), s.square_keep)),
        square_rate_(hn::Set(D(), s.square_rate)),
        inverse_c2_(hn::Set(D(), s.inverse_c2)),
        eps_(hn::Set(D(), s.eps)),
        step_size_(hn::Set(D(), s.step_size)) {}

  HWY_INLINE void operator()(const AdamPointers& range, int64_t i) const {
    const D d;
    const V p = hn::LoadU(d, range.master + i);
    V g = hn::Mul(hn::LoadU(d, range.grad + i), grad_scale_);
    if (has_l2_) g = hn::Add(g, hn::Mul(l2_, p));
    V m = hn::LoadU(d, range.m + i);
    m = hn::Add(m, hn::Mul(mean_rate_, hn::Sub(g, m)));
    const V kept = hn::Mul(square_keep_, hn::LoadU(d, range.v + i));
    const V v = hn::Add(kept, hn::Mul(hn::Mul(square_rate_, g), g));
    const V denominator = hn::Add(hn::Mul(hn::Sqrt(v), inverse_c2_), eps_);
    hn::StoreU(m, d, range.m + i);
    hn::StoreU(v, d, range.v + i);
    const V change = hn::Div(hn::Mul(step_size_, m), denominator);
    hn::StoreU(hn::Sub(hn::Mul(p, decay_), change), d, range.master + i);
  }

  HWY_INLINE static void Prefetch(const AdamPointers& range, int64_t i) {
    hwy::Prefetch(range.master + i);
    hwy::Prefetch(range.m + i);
    hwy::Prefetch(range.v + i);
    hwy::Prefetch(range.grad + i);
  }

 private:
  bool has_l2_;
  V grad_scale_, l2_, decay_, mean_rate_, square_keep_, square_rate_, inverse_c2_, eps_, step_size_;
};

template <class D>
class SgdUpdate {
  using V = hn::Vec<D>;

 public:
  HWY_INLINE explicit SgdUpdate(const SgdScalars& s)
      : flags_(s),
        grad_scale_(hn::Set(D(), s.grad_scale)),
        l2_(hn::Set(D(), s.l2)),
        momentum_(hn::Set(D(), s.momentum)),
        gradient_share_(hn::Set(D(), s.gradient_share)),
        lr_(hn::Set(D(), s.lr)) {}

  HWY_INLINE void operator()(const SgdPointers& range, int64_t i) const {
    const D d;
    const V p = hn::LoadU(d, range.master + i);
    V g = hn::Mul(hn::LoadU(d, range.grad + i), grad_scale_);
    if (flags_.l2 != 0) g = hn::Add(g, hn::Mul(l2_, p));
    if (flags_.has_momentum) g = Momentum(g, range.momentum + i);
    hn::StoreU(hn::Sub(p, hn::Mul(lr_, g)), d, range.master + i);
  }

  HWY_INLINE static void Prefetch(const SgdPointers& range, int64_t i) {
    hwy::Prefetch(range.master + i);
    hwy::Prefetch(range.grad + i);
    if (range.momentum != nullptr) hwy::Prefetch(range.momentum + i);
  }

 private:
  // Updates the momentum; what p moves along.
  HWY_INLINE V Momentum(V g, float* momentum) const {
    const D d;
    V b = g;
    if (!flags_.first) {
      const V kept = hn::Mul(momentum_, hn::LoadU(d, momentum));
      b = hn::Add(kept, hn::Mul(gradient_share_, g));
    }
    hn::StoreU(b, d, momentum);
    return flags_.nesterov ? hn::Add(g, hn::Mul(momentum_, b)) : b;
  }

  SgdScalars flags_;
  V grad_scale_, l2_, momentum_, gradient_share_, lr_;
};

// Elements between an update and the prefetch of its memory.
constexpr int64_t kAhead_elems = 128;

template <template <class> class Update, class Scalars, class Pointers>
HWY_INLINE void UpdateAll(const Scalars& scalars, const Pointers& range, int64_t elems) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  const Update<decltype(d)> update(scalars);
  constexpr int64_t kLine_elems = 16;
  int64_t i = 0;
  for (; i + kLine_elems <= elems; i += kLine_elems) {
    Update<decltype(d)>::Prefetch(range, i + kAhead_elems);
    for (int64_t j = 0; j < kLine_elems; j += kLanes) update(range, i + j);
  }
  for (; i + kLanes <= elems; i += kLanes) update(range, i);
  const Update<decltype(d1)> update_one(scalars);
  for (; i < elems; ++i) update_one(range, i);
}

void AdamVector(const AdamScalars& scalars, const AdamPointers& range, int64_t elems) {
  UpdateAll<AdamUpdate>(scalars, range, elems);
}

void SgdVector(const SgdScalars& scalars, const SgdPointers& range, int64_t elems) {
  UpdateAll<SgdUpdate>(scalars, range, elems);
}

}  // namespace zpp::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
