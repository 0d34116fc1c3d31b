// Encode: codes from values and scales, in batches of blocks that fit L1.
#if defined(ZPP_QUANT_SIMD_ENCODE) == defined(HWY_TARGET_TOGGLE)
#ifdef ZPP_QUANT_SIMD_ENCODE
#undef ZPP_QUANT_SIMD_ENCODE
#else
#define ZPP_QUANT_SIMD_ENCODE
#endif

#include "quant/codec_kernels.h"
#include "quant/simd/noise-inl.h"
#include "quant/simd/pack-inl.h"
#include "quant/simd/range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zpp::HWY_NAMESPACE {

// v + 1 where the mask is set.
template <class M>
HWY_INLINE VF AddOneIf(M mask, VF v) {
  const VF one = hn::Set(DF(), 1.0f);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VF{_mm512_mask_add_ps(v.raw, mask.raw, v.raw, one.raw)};
#else
  return hn::Add(v, hn::IfThenElseZero(mask, one));
#endif
}

// As FloorRoot; magnitude <= 49.
HWY_INLINE VF FloorRoots(VF magnitude) {
  const DF df;
#if HWY_TARGET == HWY_AVX3_DL
  alignas(64) static constexpr uint8_t kRoots[64] = {
      0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4,
      4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6,
      6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7};
  const __m512i floor = _mm512_cvttps_epi32(magnitude.raw);
  const __m512i root = _mm512_permutexvar_epi8(floor, _mm512_load_si512(kRoots));
  return hn::ConvertTo(df, VI{root});
#else
  VF root = hn::Zero(df);
  for (int k = 1; k <= 7; ++k) {
    root = AddOneIf(hn::Ge(magnitude, hn::Set(df, static_cast<float>(k * k))), root);
  }
  return root;
#endif
}

// As StochasticCode, but still a float and not clamped. A scale that was rounded away from zero and
// not lowered again leaves |t| at most one unit in the last place above the top level T: less than
// UniformOf ever gives, or just that. So no code exceeds T, and -T - 1 occurs only with the linear
// code: EncodeCodes lifts it.
template <class As>
HWY_INLINE VF StochasticCodes(VF t, VF uniform) {
  const DF df;
  if constexpr (As::kCode == Code::kLinear) {
    const VF floor = hn::Floor(t);
    return AddOneIf(hn::Lt(uniform, hn::Sub(t, floor)), floor);
  } else {
    const VF magnitude = hn::Abs(t);
    const VF root = FloorRoots(magnitude);
    const VF gap = hn::Add(hn::Add(root, root), hn::Set(df, 1.0f));
    const VF rest = hn::Sub(magnitude, hn::Mul(root, root));
    return hn::CopySignToAbs(AddOneIf(hn::Lt(hn::Mul(uniform, gap), rest), root), t);
  }
}

// Codes, or with the sqrt code and nearest rounding levels, in the low bytes: see RoundToInt.
template <class As, class T>
HWY_INLINE VI CodesAt(T type, const std::byte* in, VF inverse, const float* uniform) {
  VF t = hn::Mul(LoadF32(type, in), inverse);
  if constexpr (As::kRounding == Rounding::kStochastic) {
    t = StochasticCodes<As>(t, hn::LoadU(DF(), uniform));
  }
  return hn::BitCast(DI(), hn::Add(t, hn::Set(DF(), kRoundingMagic)));
}

// A vector of that many bytes is expected in memory, not in L2.
constexpr int64_t kFromMemory_bytes = int64_t{1} << 20;

// Codes of `elems` elements, a multiple of kStep.
template <class As, class T>
HWY_INLINE void EncodeCodes(T type, const std::byte* in, int64_t elems, float inverse_scale,
                            const float* uniform, std::byte* codes) {
  const VF inverse = hn::Set(DF(), inverse_scale);
  constexpr int64_t kRow_bytes = kLanes * T::kBytes;
  for (int64_t i = 0; i < elems; i += kStep) {
    const std::byte* p = in + i * T::kBytes;
    VB bytes = PackBytes(CodesAt<As>(type, p, inverse, uniform + i),
                         CodesAt<As>(type, p + kRow_bytes, inverse, uniform + i + kLanes),
                         CodesAt<As>(type, p + 2 * kRow_bytes, inverse, uniform + i + 2 * kLanes),
                         CodesAt<As>(type, p + 3 * kRow_bytes, inverse, uniform + i + 3 * kLanes));
    if constexpr (As::kRounding == Rounding::kStochastic && As::kCode == Code::kLinear) {
      const float top = TopLevel(As::Spec(ScaleType::kBF16));
      bytes = hn::Max(bytes, hn::Set(DB(), static_cast<int8_t>(-top)));
    }
    if constexpr (As::kFormat == Format::kInt8) {
      hn::StoreU(bytes, DB(), reinterpret_cast<int8_t*>(codes + i));
    } else {
      if constexpr (As::kRounding == Rounding::kNearest) {
        bytes = As::kCode == Code::kSqrt ? SqrtCodes(bytes) : hn::Min(bytes, hn::Set(DB(), 7));
      }
      StoreNibbles(bytes, codes + i / 2);
    }
  }
}

template <class As>
constexpr int64_t CodeBytes(int64_t elems) {
  return As::kFormat == Format::kInt8 ? elems : (elems + 1) / 2;
}

// Codes of one block whose length is a multiple of kStep.
template <class As, class T>
HWY_INLINE void EncodeBlock(T type, const std::byte* in, int64_t elems, float inverse,
                            const float* uniform, std::byte* codes) {
  if (HWY_UNLIKELY(inverse == 0.0f)) {
    std::memset(codes, 0, static_cast<size_t>(CodeBytes<As>(elems)));
  } else {
    EncodeCodes<As>(type, in, elems, inverse, uniform, codes);
  }
}

// A vector being encoded: where its blocks and their codes lie.
template <class As, class T>
class BlockEncoder {
 public:
  BlockEncoder(const QuantSpec& spec, ConstVec in, PayloadOut out, const NoiseKey& noise,
               bool stream)
      : spec_(spec),
        block_elems_(spec.block_elems),
        scale_type_(spec.scale_type),
        dtype_(in.dtype),
        in_(static_cast<const std::byte*>(in.data)),
        out_(out),
        noise_(noise),
        stream_(stream),
        from_memory_(in.elems * T::kBytes >= kFromMemory_bytes) {
    if constexpr (kNoisy) keys_.Set(noise);
  }

  // Whole blocks that make a batch.
  int64_t BatchBlocks() const {
    const int64_t elems = from_memory_ ? kShortBatch_elems : kBatch_elems;
    return std::clamp<int64_t>(elems / block_elems_, 1, kMaxBatch);
  }

  // `count` whole blocks from `first` on, at most BatchBlocks(). All ranges first, all scales at
  // once, then the codes: no block waits for the divisions of its own scale.
  void Batch(int64_t first, int64_t count) {
    RangesOf(T(), in_ + first * BlockBytes(), block_elems_, count, ranges_);
    MakeScales<As>(scale_type_, ranges_, count, scales_, inverses_);
    const int64_t start = first * block_elems_;
    std::byte* const to = out_.codes + CodeBytes<As>(start);
    std::byte* const codes = stream_ ? staged_ : to;
    for (int64_t b = 0; b < count; ++b) {
      const int64_t at = b * block_elems_;
      const std::byte* const in = in_ + (start + at) * T::kBytes;
      if (from_memory_) TouchPageAhead(in, BlockBytes());
      std::byte* const block_codes = codes + CodeBytes<As>(at);
      if (NeedsClamp(scales_[b])) {
        Clamped(first + b, block_elems_, block_codes);
        continue;
      }
      StoreScale(scale_type_, scales_[b], out_.scales, first + b);
      EncodeBlock<As>(T(), in, block_elems_, inverses_[b], NoiseFrom(start + at, block_elems_),
                      block_codes);
    }
    if (stream_) StreamCopy(codes, CodeBytes<As>(count * block_elems_), to);
  }

  // A block of any length: through buffers, padded with zeros, which change no range.
  void Padded(int64_t block, int64_t elems) {
    const int64_t at = block * block_elems_;
    const int64_t rounded = (elems + kStep - 1) / kStep * kStep;
    alignas(64) std::byte values[(kMaxBlock_elems + kStep) * T::kBytes];
    alignas(64) std::byte codes[kMaxBlock_elems + kStep];
    std::memcpy(values, in_ + at * T::kBytes, static_cast<size_t>(elems * T::kBytes));
    std::memset(values + elems * T::kBytes, 0, static_cast<size_t>((rounded - elems) * T::kBytes));
    RangesOf(T(), values, rounded, 1, ranges_);
    const BlockScale scale =
        MakeScale(As::Spec(scale_type_), ranges_.positive[0], ranges_.negative[0]);
    if (NeedsClamp(scale.scale)) return Clamped(block, elems, out_.codes + CodeBytes<As>(at));
    StoreScale(scale_type_, scale.scale, out_.scales, block);
    EncodeBlock<As>(T(), values, rounded, scale.inverse, NoiseFrom(at, rounded), codes);
    std::memcpy(out_.codes + CodeBytes<As>(at), codes, static_cast<size_t>(CodeBytes<As>(elems)));
  }

 private:
  static constexpr bool kNoisy = As::kRounding == Rounding::kStochastic;
  int64_t BlockBytes() const { return block_elems_ * T::kBytes; }

  // May the scale have been lowered to keep values finite? Then t may lie well beyond the top
  // level.
  static bool NeedsClamp(float scale) {
    return kNoisy && scale > kLargestF32 / (2 * TopLevel(As::Spec(ScaleType::kBF16)));
  }

  // Such blocks are rare enough for the scalar codec.
  void Clamped(int64_t block, int64_t elems, std::byte* codes) {
    const int64_t at = block * block_elems_;
    NoiseKey noise = noise_;
    noise.first_elem += static_cast<uint64_t>(at);
    ScalarKernels().encode(spec_, {dtype_, in_ + at * T::kBytes, elems},
                           {out_.scales + block * ScaleBytes(spec_), codes}, noise, false);
  }

  HWY_INLINE const float* NoiseFrom(int64_t at, int64_t elems) {
    if constexpr (!kNoisy) return uniforms_;
    return FillNoise(noise_.first_elem + static_cast<uint64_t>(at), elems, keys_, uniforms_);
  }

  const QuantSpec spec_;
  const int64_t block_elems_;
  const ScaleType scale_type_;
  const DType dtype_;
  const std::byte* const in_;
  const PayloadOut out_;
  const NoiseKey noise_;
  const bool stream_;
  const bool from_memory_;
  PhiloxKeys keys_;
  Ranges ranges_;
  alignas(64) std::byte staged_[kBatch_elems];
  alignas(64) float scales_[kMaxBatch];
  alignas(64) float inverses_[kMaxBatch];
  alignas(64) float uniforms_[kNoisy ? kMaxBlock_elems + kStep + 2 * kNoiseGroup_elems : 1];
};

template <class As, class T>
void EncodeLoop(const QuantSpec& spec, ConstVec in, PayloadOut out, const NoiseKey& noise,
                bool stream) {
  BlockEncoder<As, T> encoder(spec, in, out, noise, stream);
  const int64_t block_elems = spec.block_elems;
  const int64_t blocks = block_elems % kStep == 0 ? in.elems / block_elems : 0;
  const int64_t batch = encoder.BatchBlocks();
  for (int64_t b = 0; b < blocks; b += batch) encoder.Batch(b, std::min(batch, blocks - b));
  for (int64_t b = blocks; b * block_elems < in.elems; ++b) {
    encoder.Padded(b, std::min(block_elems, in.elems - b * block_elems));
  }
}

template <Format kF, Code kC, Rounding kR>
void EncodeTyped(const QuantSpec& spec, ConstVec in, PayloadOut out, const NoiseKey& noise,
                 bool stream) {
  WithType(in.dtype, [&](auto type) {
    EncodeLoop<EncodeAs<kF, kC, kR>, decltype(type)>(spec, in, out, noise, stream);
  });
}

void EncodeVector(const QuantSpec& spec, ConstVec in, PayloadOut out, const NoiseKey& noise,
                  bool stream) {
  constexpr Code kLinear = Code::kLinear, kSqrt = Code::kSqrt;
  constexpr Rounding kNearest = Rounding::kNearest, kStochastic = Rounding::kStochastic;
  const bool nearest = spec.rounding == kNearest;
  if (spec.format == Format::kInt8) {
    return nearest ? EncodeTyped<Format::kInt8, kLinear, kNearest>(spec, in, out, noise, stream)
                   : EncodeTyped<Format::kInt8, kLinear, kStochastic>(spec, in, out, noise, stream);
  }
  if (spec.code == kLinear) {
    return nearest ? EncodeTyped<Format::kInt4, kLinear, kNearest>(spec, in, out, noise, stream)
                   : EncodeTyped<Format::kInt4, kLinear, kStochastic>(spec, in, out, noise, stream);
  }
  return nearest ? EncodeTyped<Format::kInt4, kSqrt, kNearest>(spec, in, out, noise, stream)
                 : EncodeTyped<Format::kInt4, kSqrt, kStochastic>(spec, in, out, noise, stream);
}

}  // namespace zpp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
