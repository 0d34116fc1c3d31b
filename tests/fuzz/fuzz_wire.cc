// libFuzzer: any bytes as a message. What the header and CheckPayload accept must decode, on every
// target alike, and encode to the same bytes where that is promised; nothing may be read or written
// out of bounds.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "quant/codec.h"
#include "quant/wire.h"

namespace {

using namespace zpp;  // NOLINT(google-build-using-namespace)

void Require(bool condition) {
  if (!condition) std::abort();
}

std::vector<uint32_t> DecodeOn(std::string_view target, const WireHeader& header,
                               std::span<const std::byte> payload) {
  Require(SetCodecTarget(target).ok());
  std::vector<uint32_t> values(static_cast<size_t>(header.elems), 0xdeadbeef);
  Require(Decode(header.spec, payload, {DType::kF32, values.data(), header.elems}).ok());
  return values;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> message(reinterpret_cast<const std::byte*>(data), size);
  const Result<WireHeader> header = ReadWireHeader(message);
  if (!header.ok()) return 0;
  const auto payload = message.subspan(static_cast<size_t>(kWireHeader_bytes));
  const bool plausible = CheckPayload(header->spec, header->elems, payload).ok();
  if (payload.size() != static_cast<size_t>(PayloadBytes(header->spec, header->elems))) {
    Require(!plausible);
    return 0;
  }
  // Even a payload that lies must decode without harm.
  const std::vector<uint32_t> expected = DecodeOn("scalar", *header, payload);
  if (!header->spec.compressed() || !plausible) {
    (void)DecodeOn("", *header, payload);
    return 0;
  }
  for (std::string_view target : CodecTargets()) {
    Require(DecodeOn(target, *header, payload) == expected);
  }
  std::vector<std::byte> again(payload.size());
  Require(Encode(header->spec, {DType::kF32, expected.data(), header->elems}, again).ok());
  Require(CheckPayload(header->spec, header->elems, again).ok());
  return 0;
}
