// XXH64 (xxhash, seed 0), as `xxh64sum` prints it: 16 hex digits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zpp::internal {

uint64_t Checksum(std::span<const std::byte> bytes);
inline uint64_t Checksum(std::string_view text) {
  return Checksum(std::as_bytes(std::span(text.data(), text.size())));
}

// The digits of all of them, one after another.
std::string ToHex(std::span<const uint64_t> checksums);
inline std::string ToHex(uint64_t checksum) { return ToHex(std::span(&checksum, 1)); }
// Nothing when it is not a whole number of checksums in lower-case digits.
std::optional<std::vector<uint64_t>> FromHex(std::string_view digits);

}  // namespace zpp::internal
