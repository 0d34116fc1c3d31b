// The exact squares of floats, as integers and the exponents that they belong to.
#if defined(ZPP_ZERO_SIMD_SQUARES) == defined(HWY_TARGET_TOGGLE)
#ifdef ZPP_ZERO_SIMD_SQUARES
#undef ZPP_ZERO_SIMD_SQUARES
#else
#define ZPP_ZERO_SIMD_SQUARES
#endif

#include "hwy/highway.h"
#include "zero/internal/optimizer_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace zpp::optimizer::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// In an order of its own within a register: all even lanes, then all odd ones.
void SquaresVector(const float* values, SquareGroup& group) {
  const hn::ScalableTag<uint32_t> d;
  const hn::ScalableTag<float> df;
  const hn::ScalableTag<uint64_t> d64;
  constexpr size_t kLanes = hn::MaxLanes(d);
  static_assert(SquareGroup::kElems % kLanes == 0);
  const auto zero = hn::Zero(d);
  for (size_t i = 0; i < SquareGroup::kElems; i += kLanes) {
    const auto bits = hn::BitCast(d, hn::LoadU(df, values + i));
    const auto exponent = hn::And(hn::ShiftRight<23>(bits), hn::Set(d, 0xff));
    const auto one = hn::IfThenZeroElse(hn::Eq(exponent, zero), hn::Set(d, 0x800000));
    const auto mantissa = hn::Or(hn::And(bits, hn::Set(d, 0x7fffff)), one);
    const auto odd = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, mantissa)));
    hn::StoreU(hn::MulEven(mantissa, mantissa), d64, group.squares + i);
    hn::StoreU(hn::MulEven(odd, odd), d64, group.squares + i + kLanes / 2);
    const auto exponents = hn::BitCast(d64, exponent);
    hn::StoreU(hn::And(exponents, hn::Set(d64, 0xffffffffu)), d64, group.exponents + i);
    hn::StoreU(hn::ShiftRight<32>(exponents), d64, group.exponents + i + kLanes / 2);
  }
}

}  // namespace zpp::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
