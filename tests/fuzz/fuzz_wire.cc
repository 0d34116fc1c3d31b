// Any bytes as a message. The header is refused with one sentence or comes back byte for byte; any
// payload of the right size decodes inside its spans, on every target alike; what was decoded
// encodes idempotently.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "quant/codec.h"
#include "quant/wire.h"
#include "tests/fuzz/check.h"

namespace zpp {
namespace {

constexpr int64_t kMaxElems = 4096;

using Bytes = std::vector<std::byte>;

Bytes EncodeAll(const QuantSpec& spec, const std::vector<float>& values) {
  const auto elems = static_cast<int64_t>(values.size());
  Bytes payload(static_cast<size_t>(PayloadBytes(spec, elems)));
  ZPP_FUZZ_CHECK(Encode(spec, {DType::kF32, values.data(), elems}, payload).ok());
  return payload;
}

std::vector<float> DecodeAll(const QuantSpec& spec, const Bytes& payload, int64_t elems) {
  std::vector<float> values(static_cast<size_t>(elems), 7.0f);
  ZPP_FUZZ_CHECK(Decode(spec, payload, {DType::kF32, values.data(), elems}).ok());
  return values;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void CheckHeader(const WireHeader& header, std::span<const std::byte> message) {
  std::byte again[kWireHeader_bytes];
  WriteWireHeader(header, again);
  ZPP_FUZZ_CHECK(std::memcmp(again, message.data(), sizeof again) == 0);
  ZPP_FUZZ_CHECK(Validate(header.spec).ok());
  ZPP_FUZZ_CHECK(PayloadBytes(header.spec, header.elems) >= 0);
}

void CheckWrongSize(const WireHeader& header, Bytes payload) {
  payload.emplace_back();
  ZPP_FUZZ_CHECK(!CheckPayload(header.spec, header.elems, payload).ok());
  std::vector<float> values(static_cast<size_t>(header.elems), 7.0f);
  ZPP_FUZZ_CHECK(!Decode(header.spec, payload, {DType::kF32, values.data(), header.elems}).ok());
  for (const float value : values) ZPP_FUZZ_CHECK(value == 7.0f);
}

// Even a payload that lies must decode without harm.
void CheckAnyPayload(const WireHeader& header, const Bytes& payload) {
  const QuantSpec& spec = header.spec;
  const std::vector<float> values = DecodeAll(spec, payload, header.elems);
  std::vector<uint16_t> halves(values.size());
  ZPP_FUZZ_CHECK(Decode(spec, payload, {DType::kF16, halves.data(), header.elems}).ok());
  ZPP_FUZZ_CHECK(Decode(spec, payload, {DType::kBF16, halves.data(), header.elems}).ok());
  std::vector<float> sum(values.size(), 1.0f);
  ZPP_FUZZ_CHECK(DecodeAccumulate(spec, payload, sum).ok());
  const Bytes once = EncodeAll(spec, values);
  ZPP_FUZZ_CHECK(CheckPayload(spec, header.elems, once).ok());
  if (spec.rounding == Rounding::kStochastic) return;
  ZPP_FUZZ_CHECK(EncodeAll(spec, DecodeAll(spec, once, header.elems)) == once);
}

// What Encode could have written means the same on every target, and holds NaN but never an
// infinity.
void CheckPlausiblePayload(const WireHeader& header, const Bytes& payload) {
  ZPP_FUZZ_CHECK(SetCodecTarget("scalar").ok());
  const std::vector<float> expected = DecodeAll(header.spec, payload, header.elems);
  for (const float value : expected) ZPP_FUZZ_CHECK(!std::isinf(value));
  for (const std::string_view target : CodecTargets()) {
    ZPP_FUZZ_CHECK(SetCodecTarget(target).ok());
    ZPP_FUZZ_CHECK(SameBits(DecodeAll(header.spec, payload, header.elems), expected));
  }
  ZPP_FUZZ_CHECK(SetCodecTarget("").ok());
}

}  // namespace
}  // namespace zpp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace zpp;  // NOLINT(google-build-using-namespace)
  const auto message = std::as_bytes(std::span(data, size));
  const Result<WireHeader> header = ReadWireHeader(message);
  if (!header.ok()) {
    CheckSentence(header.status());
    return 0;
  }
  CheckHeader(*header, message);
  if (header->elems > kMaxElems) return 0;
  // The rest of the input, cut or filled up with zeros to the size that the header asks for.
  const auto rest = message.subspan(kWireHeader_bytes);
  Bytes payload(static_cast<size_t>(PayloadBytes(header->spec, header->elems)));
  std::copy_n(rest.begin(), std::min(rest.size(), payload.size()), payload.begin());
  CheckWrongSize(*header, payload);
  CheckAnyPayload(*header, payload);
  const bool plausible = CheckPayload(header->spec, header->elems, payload).ok();
  if (plausible && header->spec.compressed()) CheckPlausiblePayload(*header, payload);
  return 0;
}
