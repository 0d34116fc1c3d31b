// What this rank alone keeps and updates: fp32 master weights and optimizer state of its part of
// every trainable bucket, and the part of the weights that stage 3 gathers from it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/buffer.h"
#include "common/status.h"
#include "zero/host_arena.h"
#include "zero/internal/context.h"

namespace zpp::internal {

// Of the optimizer that the config names; the learning rate may have been set since.
Status ValidateOptimizer(const ZeroConfig& config);

class OwnedState {
 public:
  // All zero. kResourceExhausted.
  static Result<OwnedState> Create(const EngineContext& context);

  // fp32, as long as context.Own(bucket); empty for frozen buckets, and m or v where the optimizer
  // has none.
  std::span<float> master(int bucket) const { return parts_[Index(bucket)].master; }
  std::span<float> m(int bucket) const { return parts_[Index(bucket)].m; }
  std::span<float> v(int bucket) const { return parts_[Index(bucket)].v; }
  // In the compute type, what this rank gives to a gather: stage 3's units only (elems 0
  // otherwise). The master itself where that is fp32.
  Vec shard_weights(int bucket) const { return parts_[Index(bucket)].weights; }

  // One optimizer step of a bucket. `grad` is as long as the master; `weights_out` may be empty.
  // The shard's weights are written too. Cuts the work into sub-groups.
  Status Update(const EngineContext& context, int bucket, int64_t step, float grad_scale,
                std::span<const float> grad, const Vec& weights_out) const;

  int64_t optimizer_bytes() const { return optimizer_bytes_; }  // master, m and v
  int64_t weights_bytes() const { return static_cast<int64_t>(weights_.size()); }

 private:
  struct Part {
    std::span<float> master, m, v;
    Vec weights;
  };
  static size_t Index(int bucket) { return static_cast<size_t>(bucket); }

  HostArena arena_;
  Buffer weights_;
  std::vector<Part> parts_;
  int64_t optimizer_bytes_ = 0;
};

}  // namespace zpp::internal
