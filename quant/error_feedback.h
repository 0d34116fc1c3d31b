// Error feedback: what an encoding lost is kept and added to the next vector.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/buffer.h"
#include "common/status.h"
#include "quant/codec.h"

namespace zpp {

// How the residual is kept: 4, 2 or about 1 byte per element.
enum class ResidualType : uint8_t { kF32, kBF16, kInt8 };

// The residual of one vector. Not thread-safe.
//
//   h = x + factor * residual;  payload = encode(h);  residual = h - decode(payload);  factor = 1.
// The factor is lazy, so that a change of the loss scale or of the clip coefficient costs nothing:
// it is kept per tile of kFeedbackTile_elems and multiplied in when the tile is next read.
inline constexpr int64_t kFeedbackTile_elems = kMaxBlock_elems;
class ErrorFeedback {
 public:
  ErrorFeedback() = default;
  // All residuals zero. `block_elems` is for kInt8. kInvalidArgument, kResourceExhausted.
  static Result<ErrorFeedback> Create(int64_t elems, ResidualType type, int32_t block_elems = 256);

  int64_t elems() const { return elems_; }
  ResidualType type() const { return type_; }
  int64_t bytes() const { return static_cast<int64_t>(store_.size()); }

  // payload = encode(x + residual of elements first .. first + x.elems); that residual becomes what
  // was lost. `first` is a multiple of kFeedbackTile_elems, and so is x.elems unless it ends the
  // vector. An element whose loss is not finite gets a residual of zero. Statistics compare
  // decode(h) with h. Allocates nothing.
  Status Encode(const QuantSpec& spec, int64_t first, ConstVec x, std::span<std::byte> payload,
                const NoiseKey& noise = {}, ErrorStats* stats = nullptr);

  // The same for a sum, in one pass: x = (in_0 + in_1 + ...) / divisor as ReduceRecode makes it, of
  // args.elems elements. Nothing is rounded between the sum and the residual.
  Status Reduce(const ReduceArgs& args, int64_t first, std::span<std::byte> payload,
                ErrorStats* stats = nullptr);

  // Multiplies the whole residual by `factor`, lazily. kInvalidArgument unless finite.
  Status Scale(float factor);
  // Forgets the residual: after a step that was skipped because of an overflow.
  void Drop();
  // x += residual, exactly in fp32, and forgets it: at an exact step. x has elems() elements.
  Status Flush(std::span<float> x);
  // out = residual.
  Status Read(std::span<float> out) const;
  // out = residual without its lazy factor. Write() of it and Scale(factor(0)) make the same state
  // again, to the bit, as long as all tiles have one factor: for checkpoints.
  Status ReadUnscaled(std::span<float> out) const;
  // Of the tile that element `elem` lies in.
  float factor(int64_t elem) const {
    return factors_[static_cast<size_t>(elem / kFeedbackTile_elems)];
  }
  Result<ErrorFeedback> Clone() const;
  // residual = in, rounded to the type it is kept in.
  Status Write(std::span<const float> in);

 private:
  Status CheckElems(int64_t elems) const;
  Status CheckRun(int64_t first, int64_t elems) const;
  std::span<std::byte> Tile(int64_t at, int64_t elems) const;
  void LoadTile(int64_t at, float factor, std::span<float> out) const;
  Status ReadTimes(std::span<float> out, bool scaled) const;
  void StoreTile(int64_t at, std::span<float> values);

  int64_t elems_ = 0;
  ResidualType type_ = ResidualType::kF32;
  QuantSpec spec_;              // how a tile's residual is kept
  Buffer store_;                // one tile's payload after the other
  std::vector<float> factors_;  // per tile
};

}  // namespace zpp
