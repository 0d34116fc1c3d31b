// How a vector falls into parts, and a part into chunks.
#include <algorithm>

#include "collectives/plan/plan.h"

namespace zpp {
namespace {

int64_t BlocksOf(int64_t elems, int64_t grid_elems) {
  return elems / grid_elems + (elems % grid_elems != 0 ? 1 : 0);
}

// Where the first i of n equal shares of a vector end, on the grid.
class Shares {
 public:
  Shares(int64_t elems, int64_t grid_elems, int64_t n)
      : elems_(elems), grid_elems_(grid_elems), n_(n), blocks_(BlocksOf(elems, grid_elems)) {}

  int64_t End(int64_t i) const {
    const int64_t blocks = BlocksIn(i);
    return blocks == blocks_ ? elems_ : blocks * grid_elems_;
  }

 private:
  // floor(blocks * i / n), without the product's overflow.
  int64_t BlocksIn(int64_t i) const {
    constexpr int64_t kSmall = int64_t{1} << 31;  // i <= n < 2^31
    if (blocks_ < kSmall) return blocks_ * i / n_;
    return blocks_ / n_ * i + blocks_ % n_ * i / n_;
  }

  int64_t elems_, grid_elems_, n_, blocks_;
};

}  // namespace

Partition Partition::Even(int64_t elems, int parts, int64_t grid_elems) {
  Partition p;
  p.grid_elems_ = grid_elems;
  p.offset_.resize(static_cast<size_t>(parts) + 1);
  const Shares shares(elems, grid_elems, parts);
  for (int i = 0; i <= parts; ++i) p.offset_[static_cast<size_t>(i)] = shares.End(i);
  return p;
}

Partition Partition::Sized(std::span<const int64_t> part_elems, int64_t grid_elems) {
  Partition p;
  p.grid_elems_ = grid_elems;
  p.offset_.reserve(part_elems.size() + 1);
  p.offset_.push_back(0);
  for (int64_t elems : part_elems) p.offset_.push_back(p.offset_.back() + elems);
  return p;
}

Partition Partition::Pairwise(int64_t elems, int world, int64_t grid_elems) {
  Partition p;
  p.grid_elems_ = grid_elems;
  p.pair_elems_ = elems;
  p.pair_world_ = world;
  return p;
}

int64_t Partition::parts() const {
  if (pair_world_ > 0) return pair_world_ * pair_world_;
  return offset_.empty() ? 0 : static_cast<int64_t>(offset_.size()) - 1;
}

int64_t Partition::Elems(PartId part) const {
  return pair_world_ > 0 ? pair_elems_ : offset_[part + 1] - offset_[part];
}

int64_t Partition::Offset(PartId part, bool received) const {
  if (pair_world_ == 0) return offset_[part];
  return (received ? part / pair_world_ : part % pair_world_) * pair_elems_;
}

int64_t Partition::TotalElems() const {
  if (pair_world_ > 0) return pair_elems_ * pair_world_;
  return offset_.empty() ? 0 : offset_.back();
}

int64_t Partition::MaxPartElems() const {
  if (pair_world_ > 0) return pair_elems_;
  int64_t most = 0;
  for (size_t i = 1; i < offset_.size(); ++i) most = std::max(most, offset_[i] - offset_[i - 1]);
  return most;
}

Slice Partition::ChunkOf(PartId part, int chunk, int chunks) const {
  const int64_t elems = Elems(part);
  if (chunks == 1) return {0, elems};
  const Shares shares(elems, grid_elems_, chunks);
  return {shares.End(chunk), shares.End(chunk + 1)};
}

}  // namespace zpp
