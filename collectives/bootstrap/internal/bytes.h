// Values to bytes and back, little-endian, for the control plane's frames. A reader never reads
// past its end.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace zpp::internal {

class ByteWriter {
 public:
  template <typename T>
  ByteWriter& Put(T value) {
    static_assert(std::is_integral_v<T>);
    for (size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<char>((static_cast<uint64_t>(value) >> (8 * i)) & 0xffu));
    }
    return *this;
  }
  // u32 length, then the bytes.
  ByteWriter& PutString(std::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    out_.append(text);
    return *this;
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// After a read past the end everything reads as zero and ok() is false.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T Get() {
    static_assert(std::is_integral_v<T>);
    uint64_t value = 0;
    if (!Need(sizeof(T))) return T{};
    for (size_t i = 0; i < sizeof(T); ++i) {
      value |= static_cast<uint64_t>(static_cast<unsigned char>(rest_[i])) << (8 * i);
    }
    rest_.remove_prefix(sizeof(T));
    return static_cast<T>(value);
  }
  std::string GetString() {
    const auto size = Get<uint32_t>();
    if (!Need(size)) return {};
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  bool Need(size_t bytes) {
    ok_ = ok_ && rest_.size() >= bytes;
    return ok_;
  }
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace zpp::internal
