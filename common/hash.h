// A digest that is the same on every machine.
#pragma once

#include <cstdint>

namespace zpp {

// FNV-1a over the bytes of 64-bit words, least byte first.
class Hash {
 public:
  void Add(uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) {
      state_ = (state_ ^ ((word >> (8 * byte)) & 0xff)) * 0x100000001b3ull;
    }
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325ull;
};

}  // namespace zpp
