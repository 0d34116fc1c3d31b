// Encode and decode vectors: the public face of the codec.
//
// All functions run on the calling thread, allocate nothing, and give the same bytes on every SIMD
// target (and on CUDA). Payload sizes are exact: PayloadBytes(spec, elems). The caller checks the
// spec with Validate() once; a span of a wrong size is a programming error that is reported as
// kInvalidArgument, before anything is written.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/dtype.h"
#include "common/status.h"
#include "quant/quant_spec.h"
#include "quant/wire.h"

namespace zpp {

// A borrowed vector of `elems` values of `dtype` (fp32, fp16 or bf16), at any alignment.
struct ConstVec {
  DType dtype = DType::kF32;
  const void* data = nullptr;
  int64_t elems = 0;
};
struct Vec {
  DType dtype = DType::kF32;
  void* data = nullptr;
  int64_t elems = 0;
};

// Key of the random numbers of stochastic rounding: element i uses (seed, step, first_elem + i),
// whatever the chunking, thread count or device. Ignored by nearest rounding.
struct NoiseKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t first_elem = 0;
};

// Added to, never reset, so that pieces of a vector can share one. Of a block that holds a NaN or
// an infinity only `nonfinite` is counted: all of it decodes to NaN.
struct ErrorStats {
  double sum_squared_error = 0;  // over finite elements
  double sum_squared_value = 0;  // over finite elements
  double max_abs_error = 0;
  int64_t clipped = 0;    // beyond the outermost level by more than half a step
  int64_t nonfinite = 0;  // NaN or infinity in the input
  int64_t nonzero = 0;    // finite, not zero
  int64_t zeroed = 0;     // of those, decoded as zero
  // ||decoded - x|| / ||x||; 0 for an all-zero vector.
  double relative_error() const;
  void Merge(const ErrorStats& other);
};

// out = encode(in).
Status Encode(const QuantSpec& spec, ConstVec in, std::span<std::byte> payload,
              const NoiseKey& noise = {}, ErrorStats* stats = nullptr);

// How plain values are stored; never what they are. kAuto: past the caches when this call alone
// writes kStreamFrom_bytes or more. kStream: past the caches, for a piece of a vector so large that
// nobody will find it in them. It is advice: Encode, Decode and ReduceRecode copy plain values, and
// store with statistics, the usual way; CopyBytes goes past the caches with kStream alone.
enum class StoreHint : uint8_t { kAuto, kStream };
inline constexpr int64_t kStreamFrom_bytes = int64_t{64} << 20;

// memcpy; with kStream about 1.5 times as fast when `out` is not in the caches.
void CopyBytes(std::span<const std::byte> in, std::byte* out, StoreHint stores);

// out = decode(payload), rounded to out's type (to nearest even). What the rounding of a scale
// lifts beyond the largest finite fp16 or bf16 becomes that value, not an infinity.
Status Decode(const QuantSpec& spec, std::span<const std::byte> payload, Vec out,
              StoreHint stores = StoreHint::kAuto);

// acc += decode(payload), in fp32.
Status DecodeAccumulate(const QuantSpec& spec, std::span<const std::byte> payload,
                        std::span<float> acc);

// One operand of a reduction: a payload of `elems` elements in `spec` (plain values for kNone).
struct Operand {
  QuantSpec spec;
  std::span<const std::byte> payload;
};
// out = encode(out_spec, (in_0 + in_1 + ...) / divisor), one pass: fp32 sum from left to right, one
// division when divisor != 1. One operand is a copy or a recode. Every combination of formats is
// allowed. `out` may be the very same memory as one plain operand of the same element size.
struct ReduceArgs {
  std::span<const Operand> in;
  int64_t elems = 0;
  float divisor = 1;
  QuantSpec out_spec;
  NoiseKey noise;
  StoreHint stores = StoreHint::kAuto;  // of a plain output
};
Status ReduceRecode(const ReduceArgs& args, std::span<std::byte> out, ErrorStats* stats = nullptr);

// Largest |decoded - x| that contract 2 allows for an element of a block whose largest magnitude is
// `absmax` (finite).
float ErrorBound(const QuantSpec& spec, float absmax);

// kDataLoss when a scale or a code is one that Encode never writes: for payloads from untrusted
// places.
Status CheckPayload(const QuantSpec& spec, int64_t elems, std::span<const std::byte> payload);

// The targets this CPU can run, best first, "scalar" last. SetCodecTarget forces one (tests,
// --all-targets) for the whole process, "" returns to the best; kNotFound for one that this CPU or
// build does not have.
std::vector<std::string_view> CodecTargets();
Status SetCodecTarget(std::string_view name);
std::string_view CurrentCodecTarget();

}  // namespace zpp
