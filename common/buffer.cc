#include "common/buffer.h"

#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <utility>

namespace zpp {

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  deleter_ = std::exchange(other.deleter_, nullptr);
  return *this;
}

void Buffer::Reset() {
  if (data_ != nullptr && deleter_) deleter_(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
  deleter_ = nullptr;
}

Result<Buffer> Buffer::Allocate(size_t bytes) {
  if (bytes == 0) return Buffer();
  const auto no_memory = [&] {
    return Status(StatusCode::kResourceExhausted,
                  "cannot allocate " + std::to_string(bytes) + " bytes");
  };
  if (bytes > std::numeric_limits<size_t>::max() / 2) return no_memory();
  void* data = ::operator new(bytes, std::align_val_t(kAlignment_bytes), std::nothrow);
  if (data == nullptr) return no_memory();
  return Buffer(static_cast<std::byte*>(data), bytes, [](std::byte* p, size_t) {
    ::operator delete(p, std::align_val_t(kAlignment_bytes));
  });
}

}  // namespace zpp
