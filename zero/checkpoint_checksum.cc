#include "zero/internal/checkpoint_checksum.h"

#include <charconv>

// The library's code is compiled in: whoever links zpp needs nothing besides.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace zpp::internal {
namespace {

constexpr size_t kDigits = 16;

}  // namespace

uint64_t Checksum(std::span<const std::byte> bytes) {
  return XXH64(bytes.data(), bytes.size(), /*seed=*/0);
}

std::string ToHex(std::span<const uint64_t> checksums) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string digits;
  digits.reserve(kDigits * checksums.size());
  for (const uint64_t checksum : checksums) {
    for (int shift = 60; shift >= 0; shift -= 4) digits += kHex[(checksum >> shift) & 15];
  }
  return digits;
}

std::optional<std::vector<uint64_t>> FromHex(std::string_view digits) {
  if (digits.size() % kDigits != 0) return std::nullopt;
  if (digits.find_first_not_of("0123456789abcdef") != digits.npos) return std::nullopt;
  std::vector<uint64_t> checksums(digits.size() / kDigits);
  for (size_t i = 0; i < checksums.size(); ++i) {
    const char* first = digits.data() + i * kDigits;
    std::from_chars(first, first + kDigits, checksums[i], 16);
  }
  return checksums;
}

}  // namespace zpp::internal
