// How many bytes an encoded vector takes and where they lie. quant/README.md is the exact format.
#pragma once

#include <cstdint>
#include <span>

#include "quant/quant_spec.h"

namespace zpp {

// A payload of n elements: scales of ceil(n/block) blocks, padded to 16 bytes, then the codes.
// kNone: n plain values.
struct PayloadLayout {
  int64_t blocks = 0;
  int64_t scales_bytes = 0;  // with padding: the codes begin here
  int64_t codes_bytes = 0;
  int64_t bytes() const { return scales_bytes + codes_bytes; }
};
constexpr int64_t ScaleBytes(const QuantSpec& spec) {
  return spec.scale_type == ScaleType::kBF16 ? 2 : 4;
}
// `spec` is valid and 0 <= elems <= kMaxWire_elems.
PayloadLayout LayoutOf(const QuantSpec& spec, int64_t elems);
// = LayoutOf(spec, elems).bytes(). 0 for 0 elements.
int64_t PayloadBytes(const QuantSpec& spec, int64_t elems);

// A message is a 16-byte header and a payload: it says itself what it is, so a reader can refuse it
// by name.
inline constexpr int64_t kWireHeader_bytes = 16;
inline constexpr uint8_t kWireVersion = 1;
// No vector is longer: sizes in bytes never overflow.
inline constexpr int64_t kMaxWire_elems = int64_t{1} << 48;

struct WireHeader {
  QuantSpec spec;
  int64_t elems = 0;
  bool operator==(const WireHeader&) const = default;
};

// out.size() must be kWireHeader_bytes.
void WriteWireHeader(const WireHeader& header, std::span<std::byte> out);
// kDataLoss: too short, bad magic, a version we do not know, an impossible spec or length.
Result<WireHeader> ReadWireHeader(std::span<const std::byte> message);

// What a part of `elems` elements takes between ranks: header and payload when compressed, bare
// values when plain, nothing at all for 0 elements.
int64_t MessageBytes(const QuantSpec& spec, int64_t elems);

}  // namespace zpp
