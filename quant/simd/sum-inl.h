// Sums of several operands, and conversions: sums of one.
#if defined(ZPP_QUANT_SIMD_SUM) == defined(HWY_TARGET_TOGGLE)
#ifdef ZPP_QUANT_SIMD_SUM
#undef ZPP_QUANT_SIMD_SUM
#else
#define ZPP_QUANT_SIMD_SUM
#endif

#include "quant/simd/values-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zpp::HWY_NAMESPACE {

constexpr size_t kMaxOperands = 16;
constexpr int64_t kAhead_bytes = 2048;

HWY_INLINE Group Add(const Group& a, const Group& b) {
  Group sum;
  for (int64_t j = 0; j < kVecs; ++j) sum.v[j] = hn::Add(a.v[j], b.v[j]);
  return sum;
}

template <class T>
HWY_INLINE void StoreQuotient(T type, Group sum, VF divisor, bool divide, std::byte* p) {
  if (divide) {
    for (int64_t j = 0; j < kVecs; ++j) sum.v[j] = hn::Div(sum.v[j], divisor);
  }
  StoreGroup<false, true>(type, sum, p);
}

// One element of any operand, for tails.
inline float OperandAt(const SumOperand& operand, int64_t i) {
  const std::byte* codes = operand.payload.codes;
  float value = 0;
  if (operand.spec.compressed()) {
    const float scale =
        LoadScale(operand.spec.scale_type, operand.payload.scales, i / operand.spec.block_elems);
    return ValueAt(operand.spec, scale, codes, i);
  }
  WithType(operand.spec.plain, [&](auto type) {
    value = hn::GetLane(LoadTail(type, codes + i * decltype(type)::kBytes, 1));
  });
  return value;
}

template <class T>
HWY_INLINE void SumTail(T type, std::span<const SumOperand> in, float divisor, int64_t from,
                        int64_t elems, std::byte* out) {
  for (int64_t i = from; i < elems; ++i) {
    float sum = OperandAt(in[0], i);
    for (const SumOperand& operand : in.subspan(1)) sum += OperandAt(operand, i);
    if (divisor != 1) sum /= divisor;
    StoreTail(type, hn::Set(DF(), sum), out + i * T::kBytes, 1);
  }
}

// All operands plain, of one type.
template <class In, class Out>
void SumPlain(std::span<const SumOperand> in, float divisor, Vec out) {
  const bool divide = divisor != 1;
  const VF by = hn::Set(DF(), divisor);
  std::byte* data = static_cast<std::byte*>(out.data);
  int64_t i = 0;
  for (; i + kGroup <= out.elems; i += kGroup) {
    const int64_t at = i * In::kBytes;
    Group sum = PlainValues::Load(In(), in[0].payload.codes + at);
    for (size_t k = 1; k < in.size(); ++k) {
      sum = Add(sum, PlainValues::Load(In(), in[k].payload.codes + at));
    }
    StoreQuotient(Out(), sum, by, divide, data + i * Out::kBytes);
  }
  SumTail(Out(), in, divisor, i, out.elems, data);
}

// All operands of one format and block size; codes and scale types may differ.
// kCount: their number, so that all scales stay in registers; 0 for any.
template <class Values, class Out, size_t kCount>
void SumEncoded(std::span<const SumOperand> in, float divisor, Vec out) {
  const size_t count = kCount != 0 ? kCount : in.size();
  const bool divide = divisor != 1;
  const VF by = hn::Set(DF(), divisor);
  const int64_t block_elems = in[0].spec.block_elems;
  std::byte* data = static_cast<std::byte*>(out.data);
  Values values[kCount != 0 ? kCount : kMaxOperands];
  int64_t block = 0;
  int64_t i = 0;
  const int64_t block_bytes = Values::Bytes(block_elems);
  for (int64_t at = 0; at < out.elems; at += block_elems, ++block) {
    for (size_t k = 0; k < count; ++k) {
      // Several short streams are more than the CPU follows by itself.
      const std::byte* ahead = in[k].payload.codes + block * block_bytes + kAhead_bytes;
      for (int64_t line = 0; line < block_bytes; line += 64) hwy::Prefetch(ahead + line);
      const QuantSpec& spec = in[k].spec;
      values[k] = Values(spec.code, LoadScale(spec.scale_type, in[k].payload.scales, block));
    }
    const int64_t end = std::min(at + block_elems, out.elems);
    for (; i + kGroup <= end; i += kGroup) {
      const int64_t byte = Values::Bytes(i);
      Group sum = values[0].At(in[0].payload.codes + byte);
      for (size_t k = 1; k < count; ++k) {
        sum = Add(sum, values[k].At(in[k].payload.codes + byte));
      }
      StoreQuotient(Out(), sum, by, divide, data + i * Out::kBytes);
    }
  }
  SumTail(Out(), in, divisor, i, out.elems, data);
}

// Adds one operand's run [at, at + elems), elems a multiple of kGroup, to sums; or sets them.
HWY_INLINE void AddRun(const SumOperand& operand, int64_t at, int64_t elems, bool first,
                       float* sums) {
  const auto put = [&](int64_t i, const Group& group) {
    for (int64_t j = 0; j < kVecs; ++j) {
      float* p = sums + i + j * kLanes;
      const VF v = first ? group.v[j] : hn::Add(hn::Load(DF(), p), group.v[j]);
      hn::Store(v, DF(), p);
    }
  };
  if (!operand.spec.compressed()) {
    return WithType(operand.spec.plain, [&](auto type) {
      const std::byte* p = operand.payload.codes + at * decltype(type)::kBytes;
      for (int64_t i = 0; i < elems; i += kGroup) {
        put(i, PlainValues::Load(type, p + i * decltype(type)::kBytes));
      }
    });
  }
  WithValues(operand.spec.format, [&](auto kind) {
    using Values = decltype(kind);
    const float scale =
        LoadScale(operand.spec.scale_type, operand.payload.scales, at / operand.spec.block_elems);
    const Values values(operand.spec.code, scale);
    for (int64_t i = 0; i < elems; i += kGroup) {
      put(i, values.At(operand.payload.codes + Values::Bytes(at + i)));
    }
  });
}

// Any mixture: runs of the smallest block through a buffer in L1.
template <class Out>
void SumMixed(std::span<const SumOperand> in, float divisor, Vec out) {
  alignas(64) float sums[kMaxBlock_elems];
  int64_t run = kMaxBlock_elems;
  for (const SumOperand& operand : in) {
    if (operand.spec.compressed()) run = std::min<int64_t>(run, operand.spec.block_elems);
  }
  const VF by = hn::Set(DF(), divisor);
  std::byte* data = static_cast<std::byte*>(out.data);
  const int64_t whole = out.elems / kGroup * kGroup;
  for (int64_t at = 0; at < whole; at += run) {
    const int64_t elems = std::min(run, whole - at);
    for (size_t k = 0; k < in.size(); ++k) AddRun(in[k], at, elems, k == 0, sums);
    for (int64_t i = 0; i < elems; i += kGroup) {
      Group group;
      for (int64_t j = 0; j < kVecs; ++j) group.v[j] = hn::Load(DF(), sums + i + j * kLanes);
      StoreQuotient(Out(), group, by, divisor != 1, data + (at + i) * Out::kBytes);
    }
  }
  SumTail(Out(), in, divisor, whole, out.elems, data);
}

// Do all operands take the same code path?
HWY_INLINE bool Uniform(std::span<const SumOperand> in) {
  const QuantSpec& a = in[0].spec;
  return in.size() <= kMaxOperands &&
         std::all_of(in.begin(), in.end(), [&](const SumOperand& operand) {
           const QuantSpec& b = operand.spec;
           return a.format == b.format && a.block_elems == b.block_elems && a.plain == b.plain;
         });
}

template <class Out>
void SumInto(std::span<const SumOperand> in, float divisor, Vec out) {
  const QuantSpec& spec = in[0].spec;
  if (!Uniform(in)) return SumMixed<Out>(in, divisor, out);
  if (spec.compressed()) {
    return WithValues(spec.format, [&](auto values) {
      using Values = decltype(values);
      if (in.size() == 2) return SumEncoded<Values, Out, 2>(in, divisor, out);
      if (in.size() == 4) return SumEncoded<Values, Out, 4>(in, divisor, out);
      SumEncoded<Values, Out, 0>(in, divisor, out);
    });
  }
  WithType(spec.plain, [&](auto type) { SumPlain<decltype(type), Out>(in, divisor, out); });
}

void SumVectors(std::span<const SumOperand> in, float divisor, Vec out) {
  WithType(out.dtype, [&](auto type) { SumInto<decltype(type)>(in, divisor, out); });
}

void ConvertVector(ConstVec in, Vec out) {
  const SumOperand operand{QuantSpec::None(in.dtype),
                           {nullptr, static_cast<const std::byte*>(in.data)}};
  SumVectors({&operand, 1}, 1.0f, out);
}

}  // namespace zpp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
