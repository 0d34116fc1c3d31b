#include "quant/wire.h"

#include <bit>
#include <cstring>
#include <string>

namespace zpp {
namespace {

// Bytes of the header. Multi-byte fields are little endian; byte 7 makes the XOR of all 16 bytes
// kXor.
constexpr uint8_t kMagic0 = 'Z';
constexpr uint8_t kMagic1 = 'Q';
constexpr uint8_t kXor = 0x5a;
constexpr int kVersionAt = 2, kFormatAt = 3, kFlagsAt = 4, kBlockLog2At = 5, kRotationAt = 6,
              kCheckAt = 7, kElemsAt = 8;

constexpr int64_t RoundUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

uint8_t Flags(const QuantSpec& spec) {
  return static_cast<uint8_t>(static_cast<int>(spec.code) | static_cast<int>(spec.rounding) << 1 |
                              static_cast<int>(spec.scale_type) << 2 |
                              static_cast<int>(spec.plain) << 4);
}

uint8_t XorOf(const uint8_t* bytes) {
  uint8_t x = 0;
  for (int64_t i = 0; i < kWireHeader_bytes; ++i) x = static_cast<uint8_t>(x ^ bytes[i]);
  return x;
}

Result<QuantSpec> SpecOf(const uint8_t* bytes) {
  const uint8_t flags = bytes[kFlagsAt];
  if ((flags & 0xc8u) != 0) return DataLoss("wire header: unknown flags");
  if (bytes[kBlockLog2At] > 11) return DataLoss("wire header: impossible block size");
  QuantSpec spec;
  spec.format = static_cast<Format>(bytes[kFormatAt]);
  spec.code = static_cast<Code>(flags & 1u);
  spec.rounding = static_cast<Rounding>(flags >> 1 & 1u);
  spec.scale_type = static_cast<ScaleType>(flags >> 2 & 1u);
  spec.plain = static_cast<DType>(flags >> 4 & 3u);
  spec.block_elems = bytes[kBlockLog2At] == 0 ? 0 : 1 << bytes[kBlockLog2At];
  spec.rotation = bytes[kRotationAt];
  const Status valid = Validate(spec);
  if (!valid.ok()) return DataLoss("wire header: " + valid.message());
  return spec;
}

}  // namespace

PayloadLayout LayoutOf(const QuantSpec& spec, int64_t elems) {
  if (!spec.compressed()) return {.codes_bytes = elems * SizeOf(spec.plain)};
  if (spec.block_elems <= 0) return {};  // no spec that Validate() takes
  PayloadLayout layout;
  layout.blocks = (elems + spec.block_elems - 1) / spec.block_elems;
  layout.scales_bytes = RoundUp(layout.blocks * ScaleBytes(spec), 16);
  layout.codes_bytes = spec.format == Format::kInt8 ? elems : (elems + 1) / 2;
  return layout;
}

int64_t PayloadBytes(const QuantSpec& spec, int64_t elems) { return LayoutOf(spec, elems).bytes(); }

void WriteWireHeader(const WireHeader& header, std::span<std::byte> out) {
  const QuantSpec& spec = header.spec;
  uint8_t bytes[kWireHeader_bytes] = {};
  bytes[0] = kMagic0;
  bytes[1] = kMagic1;
  bytes[kVersionAt] = kWireVersion;
  bytes[kFormatAt] = static_cast<uint8_t>(spec.format);
  bytes[kFlagsAt] = Flags(spec);
  bytes[kBlockLog2At] = static_cast<uint8_t>(
      spec.block_elems == 0 ? 0 : std::countr_zero(static_cast<uint32_t>(spec.block_elems)));
  bytes[kRotationAt] = static_cast<uint8_t>(spec.rotation);
  for (int i = 0; i < 8; ++i) {
    bytes[kElemsAt + i] = static_cast<uint8_t>(static_cast<uint64_t>(header.elems) >> (8 * i));
  }
  bytes[kCheckAt] = static_cast<uint8_t>(XorOf(bytes) ^ kXor);
  std::memcpy(out.data(), bytes, sizeof bytes);
}

Result<WireHeader> ReadWireHeader(std::span<const std::byte> message) {
  if (message.size() < static_cast<size_t>(kWireHeader_bytes)) {
    return DataLoss("wire header: " + std::to_string(message.size()) + " bytes, it has 16");
  }
  uint8_t bytes[kWireHeader_bytes];
  std::memcpy(bytes, message.data(), sizeof bytes);
  if (bytes[0] != kMagic0 || bytes[1] != kMagic1) return DataLoss("wire header: bad magic");
  if (bytes[kVersionAt] != kWireVersion) {
    return DataLoss("wire header: version " + std::to_string(bytes[kVersionAt]) +
                    ", this library speaks " + std::to_string(kWireVersion));
  }
  if (XorOf(bytes) != kXor) return DataLoss("wire header: its check byte is wrong");
  uint64_t elems = 0;
  for (int i = 7; i >= 0; --i) elems = elems << 8 | bytes[kElemsAt + i];
  if (elems > static_cast<uint64_t>(kMaxWire_elems)) {
    return DataLoss("wire header: impossible length of " + std::to_string(elems) + " elements");
  }
  ZPP_ASSIGN_OR_RETURN(const QuantSpec spec, SpecOf(bytes));
  return WireHeader{spec, static_cast<int64_t>(elems)};
}

int64_t MessageBytes(const QuantSpec& spec, int64_t elems) {
  if (elems == 0) return 0;
  return PayloadBytes(spec, elems) + (spec.compressed() ? kWireHeader_bytes : 0);
}

}  // namespace zpp
