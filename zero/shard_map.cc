#include "zero/shard_map.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

#include "quant/error_feedback.h"

namespace zpp {
namespace {

constexpr int64_t kPlainGrid_elems = 64;  // a cache line of any type

int64_t RoundUp(int64_t value, int64_t grid) { return (value + grid - 1) / grid * grid; }

// The longest block up to `wanted` that never crosses a row: one that divides it, or else one that
// is no longer than it.
int32_t BlockInRow(int32_t wanted_elems, int64_t row_elems) {
  const int64_t divides = int64_t{1} << std::countr_zero(static_cast<uint64_t>(row_elems));
  const int64_t fits = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(row_elems)));
  const int64_t best = divides >= kMinBlock_elems ? divides : fits;
  return static_cast<int32_t>(
      std::clamp<int64_t>(best, kMinBlock_elems, std::max(wanted_elems, kMinBlock_elems)));
}

bool Compresses(const ParamSpec& param, const ZeroConfig& config) {
  if (!config.quantized_gradients && !config.quantized_weights) return false;
  return param.compress && param.elems() > 0 &&
         (param.shape.size() > 1 || config.zero_pp.compress_1d);
}

SlabKind KindOf(const ParamSpec& param, const ZeroConfig& config, bool persistent) {
  SlabKind kind;
  kind.unit = config.stage == 3 && !persistent ? param.unit : -1;
  kind.compute = param.dtype.value_or(config.compute);
  kind.trainable = param.trainable;
  kind.compressed = Compresses(param, config);
  if (kind.compressed) {
    const int32_t wanted = config.zero_pp.block_size;
    kind.int8_block_elems = BlockInRow(wanted == 0 ? 256 : wanted, param.row_elems());
    kind.int4_block_elems = BlockInRow(wanted == 0 ? 128 : wanted, param.row_elems());
  }
  return kind;
}

// Stage 3: parameters that stay whole on every rank, smallest first until their budget is spent.
std::vector<bool> Persistent(std::span<const ParamSpec> params, const ZeroConfig& config) {
  std::vector<size_t> small;
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].elems() <= config.persistence_threshold_elems) small.push_back(i);
  }
  std::stable_sort(small.begin(), small.end(),
                   [&](size_t a, size_t b) { return params[a].elems() < params[b].elems(); });
  std::vector<bool> persistent(params.size(), false);
  int64_t budget_elems = config.model_persistence_elems;
  for (const size_t i : small) {
    if (params[i].elems() > budget_elems) break;
    budget_elems -= params[i].elems();
    persistent[i] = true;
  }
  return persistent;
}

// Where a slab's buckets begin; all on its grid.
std::vector<int64_t> BucketBorders(int64_t slab_elems, int64_t grid, int64_t wanted_elems) {
  const int64_t tiles = slab_elems / grid;
  const int64_t tiles_per_bucket = std::max<int64_t>(1, wanted_elems / grid);
  const int64_t buckets = (tiles + tiles_per_bucket - 1) / tiles_per_bucket;
  std::vector<int64_t> borders;
  for (int64_t i = 0; i <= buckets; ++i)
    borders.push_back(tiles * i / std::max<int64_t>(buckets, 1) * grid);
  return borders;
}

class Builder {
 public:
  Builder(std::span<const ParamSpec> params, const ZeroConfig& config, int world)
      : params_(params), config_(config) {
    map_.world = world;
  }

  ShardMap Build() {
    PlaceParams();
    for (size_t slab = 0; slab < map_.slabs.size(); ++slab) CutSlab(static_cast<int>(slab));
    OrderReductions();
    ListUnits();
    return std::move(map_);
  }

 private:
  // Slabs are numbered by kind, so that their order does not depend on which parameter comes
  // first.
  void PlaceParams() {
    const std::vector<bool> persistent = Persistent(params_, config_);
    std::map<SlabKind, std::vector<int>> members;
    for (size_t i = 0; i < params_.size(); ++i) {
      members[KindOf(params_[i], config_, persistent[i])].push_back(static_cast<int>(i));
    }
    map_.places.resize(params_.size());
    for (const auto& [kind, list] : members) {
      const int slab = static_cast<int>(map_.slabs.size());
      int64_t at = 0;
      for (const int param : list) {
        map_.places[static_cast<size_t>(param)] = {slab, at};
        at += RoundUp(params_[static_cast<size_t>(param)].elems(), kind.grid_elems());
      }
      map_.slabs.push_back({.kind = kind, .elems = at});
      members_.push_back(list);
    }
  }

  void CutSlab(int number) {
    Slab& slab = map_.slabs[static_cast<size_t>(number)];
    const int64_t grid = slab.kind.grid_elems();
    slab.first_bucket = static_cast<int>(map_.buckets.size());
    std::vector<int64_t> borders = BucketBorders(slab.elems, grid, config_.reduce_bucket_elems);
    if (!config_.zero_pp.use_contiguous_buffers) AddParamBorders(number, &borders);
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      AddBucket(number, borders[i], borders[i + 1]);
    }
    slab.num_buckets = static_cast<int>(map_.buckets.size()) - slab.first_bucket;
    SplitParams(number);
  }

  void AddParamBorders(int number, std::vector<int64_t>* borders) const {
    for (const int param : members_[static_cast<size_t>(number)]) {
      borders->push_back(map_.places[static_cast<size_t>(param)].slab_first);
    }
    std::sort(borders->begin(), borders->end());
    borders->erase(std::unique(borders->begin(), borders->end()), borders->end());
  }

  void AddBucket(int number, int64_t begin, int64_t end) {
    const int64_t grid = map_.slabs[static_cast<size_t>(number)].kind.grid_elems();
    Bucket bucket;
    bucket.slab = number;
    bucket.slab_first = begin;
    bucket.elems = end - begin;
    const int64_t tiles = bucket.elems / grid;
    for (int64_t rank = 0; rank < map_.world; ++rank) {
      const int64_t first = tiles * rank / map_.world * grid;
      bucket.shard_first.push_back(first);
      bucket.shard_elems.push_back(tiles * (rank + 1) / map_.world * grid - first);
    }
    map_.buckets.push_back(std::move(bucket));
  }

  void SplitParams(int number) {
    const Slab& slab = map_.slabs[static_cast<size_t>(number)];
    int b = slab.first_bucket;
    for (const int param : members_[static_cast<size_t>(number)]) {
      const int64_t begin = map_.places[static_cast<size_t>(param)].slab_first;
      const int64_t end = begin + params_[static_cast<size_t>(param)].elems();
      for (int64_t at = begin; at < end;) {
        while (map_.buckets[static_cast<size_t>(b)].slab_first +
                   map_.buckets[static_cast<size_t>(b)].elems <=
               at) {
          ++b;
        }
        Bucket& bucket = map_.buckets[static_cast<size_t>(b)];
        const int64_t stop = std::min(end, bucket.slab_first + bucket.elems);
        bucket.pieces.push_back({.param = param,
                                 .param_first = at - begin,
                                 .bucket_first = at - bucket.slab_first,
                                 .elems = stop - at});
        at = stop;
      }
    }
  }

  // A backward pass meets the last parameters first: a bucket is complete when its first one is.
  void OrderReductions() {
    for (size_t b = 0; b < map_.buckets.size(); ++b) {
      const bool trainable = map_.slabs[static_cast<size_t>(map_.buckets[b].slab)].kind.trainable;
      if (trainable) map_.reduce_order.push_back(static_cast<int>(b));
    }
    const auto first_param = [&](int b) {
      const auto& pieces = map_.buckets[static_cast<size_t>(b)].pieces;
      return pieces.empty() ? 0 : pieces.front().param;
    };
    std::stable_sort(map_.reduce_order.begin(), map_.reduce_order.end(),
                     [&](int a, int b) { return first_param(a) > first_param(b); });
  }

  void ListUnits() {
    int units = 0;
    for (const ParamSpec& param : params_) units = std::max(units, param.unit + 1);
    map_.slabs_of_unit.resize(static_cast<size_t>(units));
    for (size_t a = 0; a < map_.slabs.size(); ++a) {
      const int unit = map_.slabs[a].kind.unit;
      if (unit >= 0) map_.slabs_of_unit[static_cast<size_t>(unit)].push_back(static_cast<int>(a));
    }
  }

  std::span<const ParamSpec> params_;
  const ZeroConfig& config_;
  ShardMap map_;
  std::vector<std::vector<int>> members_;  // per slab: its parameters in order
};

}  // namespace

int64_t SlabKind::grid_elems() const { return compressed ? kFeedbackTile_elems : kPlainGrid_elems; }

int64_t ShardMap::ShardElems(int rank) const {
  int64_t elems = 0;
  for (const Bucket& bucket : buckets) elems += bucket.shard_elems[static_cast<size_t>(rank)];
  return elems;
}

ShardMap MakeShardMap(std::span<const ParamSpec> params, const ZeroConfig& config, int world) {
  return Builder(params, config, world).Build();
}

}  // namespace zpp
