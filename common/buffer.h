// Owned, aligned bytes.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "common/status.h"

namespace zpp {

// 64-byte aligned memory, move only. Usually heap; a transport may hand out memory of its own with
// a deleter.
class Buffer {
 public:
  static constexpr size_t kAlignment_bytes = 64;
  using Deleter = std::function<void(std::byte* data, size_t bytes)>;

  Buffer() = default;
  Buffer(std::byte* data, size_t bytes, Deleter deleter)
      : data_(data), bytes_(bytes), deleter_(std::move(deleter)) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { Reset(); }

  // Uninitialised. kResourceExhausted when there is no memory. 0 bytes give an empty buffer.
  static Result<Buffer> Allocate(size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }
  std::span<std::byte> span() const { return {data_, bytes_}; }
  void Reset();

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Deleter deleter_;
};

}  // namespace zpp
