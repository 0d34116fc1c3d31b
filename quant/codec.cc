#include "quant/codec.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "hwy/cache_control.h"
#include "quant/codec_kernels.h"
#include "quant/codec_stats.h"
#include "quant/codec_tile.h"

namespace zpp {
namespace {

const CodecKernels& Kernels();

PayloadOut PayloadAt(const QuantSpec& spec, const PayloadLayout& layout, std::byte* payload,
                     int64_t elem) {
  if (!spec.compressed()) return {nullptr, payload + elem * SizeOf(spec.plain)};
  return {payload + elem / spec.block_elems * ScaleBytes(spec),
          payload + layout.scales_bytes + (spec.format == Format::kInt8 ? elem : elem / 2)};
}

PayloadIn PayloadAt(const QuantSpec& spec, const PayloadLayout& layout, const std::byte* payload,
                    int64_t elem) {
  const PayloadOut at = PayloadAt(spec, layout, const_cast<std::byte*>(payload), elem);
  return {at.scales, at.codes};
}

ConstVec Slice(ConstVec in, int64_t elem, int64_t elems) {
  return {in.dtype, static_cast<const std::byte*>(in.data) + elem * SizeOf(in.dtype), elems};
}

NoiseKey From(NoiseKey noise, int64_t elem) {
  noise.first_elem += static_cast<uint64_t>(elem);
  return noise;
}

// No last-level cache share is expected to hold a destination of that many bytes.
bool Streams(int64_t bytes, StoreHint stores = StoreHint::kAuto) {
  return stores == StoreHint::kStream || bytes >= kStreamFrom_bytes;
}
// Streamed stores are in order with the caller's next ones only after this.
void EndStream(bool stream) {
  if (stream) hwy::FlushStream();
}

Status CheckElems(int64_t elems, const void* data) {
  if (elems < 0 || elems > kMaxWire_elems) {
    return InvalidArgument("codec: " + std::to_string(elems) + " elements");
  }
  if (elems > 0 && data == nullptr) return InvalidArgument("codec: null data");
  return {};
}

Status CheckVector(DType dtype, int64_t elems, const void* data) {
  if (!IsFloat(dtype)) return InvalidArgument("codec: only fp32, fp16 and bf16 are encoded");
  return CheckElems(elems, data);
}

void EncodeRun(const QuantSpec& spec, ConstVec in, PayloadOut out, const NoiseKey& noise,
               bool stream = false) {
  if (spec.compressed()) {
    Kernels().encode(spec, in, out, noise, stream);
  } else if (in.dtype == spec.plain) {
    std::memmove(out.codes, in.data, static_cast<size_t>(in.elems * SizeOf(in.dtype)));
  } else {
    Kernels().convert(in, {spec.plain, out.codes, in.elems});
  }
}

// What the tile at `at` became is written to `decoded`; with `stats`, its errors are added.
void ReadBackTile(const TileTarget& target, int64_t at, std::span<const float> values,
                  float* decoded, ErrorStats* stats) {
  const QuantSpec& spec = target.spec;
  const int64_t elems = static_cast<int64_t>(values.size());
  const PayloadOut to = PayloadAt(spec, LayoutOf(spec, target.elems), target.payload.data(), at);
  if (spec.compressed()) {
    Kernels().decode(spec, {to.scales, to.codes}, {DType::kF32, decoded, elems}, false);
  } else {
    Kernels().convert({spec.plain, to.codes, elems}, {DType::kF32, decoded, elems});
  }
  if (stats != nullptr) AddErrors(spec, values.data(), decoded, elems, *stats);
}

// Tile by tile: widen, encode what was given, decode again, compare.
void EncodeWithStats(const TileTarget& target, ConstVec in, ErrorStats& stats) {
  alignas(64) float values[kTile_elems];
  alignas(64) float decoded[kTile_elems];
  const PayloadLayout layout = LayoutOf(target.spec, target.elems);
  for (int64_t at = 0; at < in.elems; at += kTile_elems) {
    const int64_t elems = std::min(kTile_elems, in.elems - at);
    const ConstVec tile = Slice(in, at, elems);
    Kernels().convert(tile, {DType::kF32, values, elems});
    EncodeRun(target.spec, tile, PayloadAt(target.spec, layout, target.payload.data(), at),
              From(target.noise, at));
    ReadBackTile(target, at, {values, static_cast<size_t>(elems)}, decoded, &stats);
  }
}

// The operands at one tile. More than this many are summed in several passes over the tile.
constexpr size_t kFusedOperands = 8;

// Sums operands first..last at element `at` into out; when `first` is not 0 the tile holds the sum
// so far.
void SumOperands(const ReduceArgs& args, int64_t at, float divisor, Vec out) {
  SumOperand operands[kFusedOperands + 1];
  size_t next = 0;
  size_t held = 0;  // 1 when operands[0] is the sum so far
  alignas(64) float partial[kTile_elems];
  while (true) {
    const size_t count = std::min(kFusedOperands, args.in.size() - next);
    for (size_t i = 0; i < count; ++i) {
      const Operand& operand = args.in[next + i];
      const PayloadLayout layout = LayoutOf(operand.spec, args.elems);
      operands[held + i] = {operand.spec,
                            PayloadAt(operand.spec, layout, operand.payload.data(), at)};
    }
    next += count;
    const std::span<const SumOperand> in(operands, held + count);
    if (next == args.in.size()) return Kernels().sum(in, divisor, out);
    Kernels().sum(in, 1.0f, {DType::kF32, partial, out.elems});
    operands[0] = {QuantSpec::None(), {nullptr, reinterpret_cast<const std::byte*>(partial)}};
    held = 1;
  }
}

void ReduceTiles(const ReduceArgs& args, std::span<std::byte> out, ErrorStats* stats) {
  alignas(64) float sum[kTile_elems];
  alignas(64) float decoded[kTile_elems];
  const bool stream = stats == nullptr && Streams(static_cast<int64_t>(out.size()));
  const TileTarget target{args.out_spec, out, args.elems, args.noise, stream};
  ClearPadding(target);
  for (int64_t at = 0; at < args.elems; at += kTile_elems) {
    const int64_t elems = std::min(kTile_elems, args.elems - at);
    SumOperands(args, at, args.divisor, {DType::kF32, sum, elems});
    EncodeTile(target, at, {sum, static_cast<size_t>(elems)}, stats != nullptr ? decoded : nullptr,
               stats);
  }
  EndStream(stream);
}

// One encoded operand to plain values: narrowed as Decode does it, not as a sum is.
void DecodeWithStats(const ReduceArgs& args, std::span<std::byte> out, ErrorStats& stats) {
  alignas(64) float values[kTile_elems];
  alignas(64) float decoded[kTile_elems];
  const Operand& in = args.in[0];
  const DType plain = args.out_spec.plain;
  const TileTarget target{args.out_spec, out, args.elems, args.noise};
  const PayloadLayout layout = LayoutOf(in.spec, args.elems);
  for (int64_t at = 0; at < args.elems; at += kTile_elems) {
    const int64_t elems = std::min(kTile_elems, args.elems - at);
    const PayloadIn from = PayloadAt(in.spec, layout, in.payload.data(), at);
    Kernels().decode(in.spec, from, {DType::kF32, values, elems}, false);
    Kernels().decode(in.spec, from, {plain, out.data() + at * SizeOf(plain), elems}, false);
    ReadBackTile(target, at, {values, static_cast<size_t>(elems)}, decoded, &stats);
  }
}

// Plain output: the sum is written where it belongs, by way of L1 when that lies past the caches.
void ReducePlain(const ReduceArgs& args, std::span<std::byte> out) {
  const DType plain = args.out_spec.plain;
  const bool stream = Streams(static_cast<int64_t>(out.size()), args.stores);
  alignas(64) std::byte staged[kTile_elems * sizeof(float)];
  for (int64_t at = 0; at < args.elems; at += kTile_elems) {
    const int64_t elems = std::min(kTile_elems, args.elems - at);
    std::byte* const to = out.data() + at * SizeOf(plain);
    SumOperands(args, at, args.divisor, {plain, stream ? staged : to, elems});
    if (stream) Kernels().stream(staged, elems * SizeOf(plain), to);
  }
  EndStream(stream);
}

// Set by SetCodecTarget; nullptr means the default.
std::atomic<const CodecKernels*> forced_kernels = nullptr;

const CodecKernels& Kernels() {
  // Acquire: the table behind it may have been made by the thread that called SetCodecTarget.
  const CodecKernels* forced = forced_kernels.load(std::memory_order_acquire);
  if (forced != nullptr) return *forced;
  static const CodecKernels* const best = DefaultKernels();
  return *best;
}

}  // namespace

Status CheckPayloadSize(const QuantSpec& spec, int64_t elems, size_t bytes) {
  // The caller has validated the spec; but without blocks there is no size to tell.
  if (spec.compressed() && spec.block_elems <= 0) return Validate(spec);
  const int64_t expected = PayloadBytes(spec, elems);
  if (bytes == static_cast<size_t>(expected)) return {};
  return InvalidArgument("codec: a payload of " + std::to_string(bytes) + " bytes, " +
                         ToString(spec) + " of " + std::to_string(elems) + " elements takes " +
                         std::to_string(expected));
}

void ClearPadding(const TileTarget& target) {
  if (!target.spec.compressed() || target.elems == 0) return;
  const PayloadLayout layout = LayoutOf(target.spec, target.elems);
  const int64_t used = layout.blocks * ScaleBytes(target.spec);
  std::memset(target.payload.data() + used, 0, static_cast<size_t>(layout.scales_bytes - used));
}

void EncodeTile(const TileTarget& target, int64_t at, std::span<const float> values, float* decoded,
                ErrorStats* stats) {
  const QuantSpec& spec = target.spec;
  const int64_t elems = static_cast<int64_t>(values.size());
  const PayloadOut to = PayloadAt(spec, LayoutOf(spec, target.elems), target.payload.data(), at);
  EncodeRun(spec, {DType::kF32, values.data(), elems}, to, From(target.noise, at), target.stream);
  if (decoded != nullptr) ReadBackTile(target, at, values, decoded, stats);
}

Status CheckReduce(const ReduceArgs& args, std::span<const std::byte> out) {
  if (args.in.empty()) return InvalidArgument("codec: a reduction of no operands");
  if (!(args.divisor > 0)) return InvalidArgument("codec: the divisor must be above zero");
  ZPP_RETURN_IF_ERROR(CheckElems(args.elems, args.elems > 0 ? out.data() : nullptr));
  ZPP_RETURN_IF_ERROR(CheckPayloadSize(args.out_spec, args.elems, out.size()));
  for (const Operand& operand : args.in) {
    ZPP_RETURN_IF_ERROR(CheckPayloadSize(operand.spec, args.elems, operand.payload.size()));
  }
  return {};
}

void SumTile(const ReduceArgs& args, int64_t at, std::span<float> sum) {
  SumOperands(args, at, args.divisor, {DType::kF32, sum.data(), static_cast<int64_t>(sum.size())});
}

void CopyBytes(std::span<const std::byte> in, std::byte* out, StoreHint stores) {
  if (in.empty()) return;  // neither pointer need be one
  if (stores == StoreHint::kAuto) {
    std::memcpy(out, in.data(), in.size());
    return;
  }
  Kernels().stream(in.data(), static_cast<int64_t>(in.size()), out);
  hwy::FlushStream();
}

Status Encode(const QuantSpec& spec, ConstVec in, std::span<std::byte> payload,
              const NoiseKey& noise, ErrorStats* stats) {
  ZPP_RETURN_IF_ERROR(CheckVector(in.dtype, in.elems, in.data));
  ZPP_RETURN_IF_ERROR(CheckPayloadSize(spec, in.elems, payload.size()));
  if (in.elems == 0) return {};
  const TileTarget target{spec, payload, in.elems, noise};
  ClearPadding(target);
  if (stats != nullptr) {
    EncodeWithStats(target, in, *stats);
  } else {
    const bool stream = Streams(static_cast<int64_t>(payload.size()));
    EncodeRun(spec, in, PayloadAt(spec, LayoutOf(spec, in.elems), payload.data(), 0), noise,
              stream);
    EndStream(stream);
  }
  return {};
}

Status Decode(const QuantSpec& spec, std::span<const std::byte> payload, Vec out,
              StoreHint stores) {
  ZPP_RETURN_IF_ERROR(CheckVector(out.dtype, out.elems, out.data));
  ZPP_RETURN_IF_ERROR(CheckPayloadSize(spec, out.elems, payload.size()));
  if (out.elems == 0) return {};
  if (spec.compressed()) {
    const PayloadLayout layout = LayoutOf(spec, out.elems);
    const bool stream = Streams(out.elems * SizeOf(out.dtype), stores);
    Kernels().decode(spec, PayloadAt(spec, layout, payload.data(), 0), out, stream);
    EndStream(stream);
  } else if (spec.plain == out.dtype) {
    std::memmove(out.data, payload.data(), payload.size());
  } else {
    Kernels().convert({spec.plain, payload.data(), out.elems}, out);
  }
  return {};
}

Status DecodeAccumulate(const QuantSpec& spec, std::span<const std::byte> payload,
                        std::span<float> acc) {
  const int64_t elems = static_cast<int64_t>(acc.size());
  ZPP_RETURN_IF_ERROR(CheckElems(elems, acc.data()));
  ZPP_RETURN_IF_ERROR(CheckPayloadSize(spec, elems, payload.size()));
  if (elems == 0) return {};
  const PayloadIn in = PayloadAt(spec, LayoutOf(spec, elems), payload.data(), 0);
  if (spec.compressed()) {
    Kernels().accumulate(spec, in, acc.data(), elems);
  } else {
    const SumOperand operands[] = {
        {QuantSpec::None(), {nullptr, reinterpret_cast<const std::byte*>(acc.data())}}, {spec, in}};
    Kernels().sum(std::span(operands), 1.0f, {DType::kF32, acc.data(), elems});
  }
  return {};
}

Status ReduceRecode(const ReduceArgs& args, std::span<std::byte> out, ErrorStats* stats) {
  ZPP_RETURN_IF_ERROR(CheckReduce(args, out));
  if (args.elems == 0) return {};
  const QuantSpec& spec = args.out_spec;
  const Operand& only = args.in[0];
  if (args.in.size() == 1 && args.divisor == 1) {
    if (!only.spec.compressed()) {
      const ConstVec values{only.spec.plain, only.payload.data(), args.elems};
      return Encode(spec, values, out, args.noise, stats);
    }
    if (!spec.compressed()) {
      if (stats == nullptr) {
        return Decode(only.spec, only.payload, {spec.plain, out.data(), args.elems}, args.stores);
      }
      DecodeWithStats(args, out, *stats);
      return {};
    }
  }
  if (spec.compressed() || stats != nullptr) {
    ReduceTiles(args, out, stats);
  } else {
    ReducePlain(args, out);
  }
  return {};
}

std::vector<std::string_view> CodecTargets() {
  std::vector<std::string_view> names;
  for (const CodecKernels* kernels : SimdKernels()) names.push_back(kernels->name);
  names.push_back(ScalarKernels().name);
  return names;
}

Status SetCodecTarget(std::string_view name) {
  const CodecKernels* kernels = nullptr;
  if (!name.empty()) {
    kernels = FindKernels(name);
    if (kernels == nullptr) {
      std::string known;
      for (std::string_view target : CodecTargets()) known.append(" ").append(target);
      return {StatusCode::kNotFound,
              "no codec target '" + std::string(name) + "' here; there are:" + known};
    }
  }
  forced_kernels.store(kernels, std::memory_order_release);
  return {};
}

std::string_view CurrentCodecTarget() { return Kernels().name; }

}  // namespace zpp
