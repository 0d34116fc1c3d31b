#include "common/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <utility>

namespace zpp {
namespace {

constexpr size_t kLargePage_bytes = size_t{2} << 20;

size_t AlignmentOf(size_t bytes) {
  return bytes >= Buffer::kLarge_bytes ? kLargePage_bytes : Buffer::kAlignment_bytes;
}

// Advice, only for pages that are all the buffer's: it takes no more memory than without.
void AskForLargePages([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
#ifdef MADV_HUGEPAGE
  (void)madvise(data, bytes / kLargePage_bytes * kLargePage_bytes, MADV_HUGEPAGE);
#endif
}

}  // namespace

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
  void* data = ::operator new(bytes, std::align_val_t(AlignmentOf(bytes)), std::nothrow);
  if (data == nullptr) return no_memory();
  if (bytes >= kLarge_bytes) AskForLargePages(data, bytes);
  return Buffer(static_cast<std::byte*>(data), bytes, [](std::byte* p, size_t size) {
    ::operator delete(p, std::align_val_t(AlignmentOf(size)));
  });
}

}  // namespace zpp
