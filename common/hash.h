// A digest that is the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace zpp {

// FNV-1a over bytes; of a 64-bit word the least byte first. Tells that things differ, not for
// security.
class Hash {
 public:
  void Add(uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) {
      state_ = (state_ ^ ((word >> (8 * byte)) & 0xff)) * 0x100000001b3ull;
    }
  }
  void Add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
      state_ = (state_ ^ static_cast<uint64_t>(byte)) * 0x100000001b3ull;
    }
  }
  void Add(std::string_view text) { Add(std::as_bytes(std::span(text))); }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325ull;
};

}  // namespace zpp
