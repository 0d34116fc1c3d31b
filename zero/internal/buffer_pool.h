// Buffers that are used again and again: a step in steady state allocates nothing.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/buffer.h"
#include "common/status.h"

namespace zpp::internal {

class BufferPool {
 public:
  // Of exactly this size, contents unspecified. 0 bytes give an empty buffer.
  Result<Buffer> Take(int64_t bytes) {
    for (size_t i = 0; i < free_.size(); ++i) {
      if (free_[i].size() != static_cast<size_t>(bytes)) continue;
      Buffer found = std::move(free_[i]);
      free_[i] = std::move(free_.back());
      free_.pop_back();
      return found;
    }
    auto made = Buffer::Allocate(static_cast<size_t>(bytes));
    if (made.ok()) allocated_bytes_ += bytes;
    return made;
  }
  void Give(Buffer buffer) {
    if (!buffer.empty()) free_.push_back(std::move(buffer));
  }
  // Of all that it ever allocated, in use or not.
  int64_t allocated_bytes() const { return allocated_bytes_; }

 private:
  std::vector<Buffer> free_;
  int64_t allocated_bytes_ = 0;
};

}  // namespace zpp::internal
