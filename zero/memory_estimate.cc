#include "zero/memory_estimate.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

namespace zpp {
namespace {

constexpr int64_t kFloatBytes = 4;

int64_t Share(int64_t elems, int64_t of) { return (elems + of - 1) / of; }

// Limits of the configuration may be as large as they like.
int64_t SaturatingSum(int64_t a, int64_t b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }

// The sizes that the formulas of the header speak of.
struct Sizes {
  int64_t s, n, f, c, p, world, node_ranks, own;
};

Sizes SizesOf(const ZeroConfig& config, const ModelSize& model, const RankLayout& layout) {
  const int64_t world = std::max(layout.world, 1);
  return {.s = SizeOf(config.compute),
          .n = model.elems,
          .f = model.frozen_elems,
          .c = model.compressed_elems,
          .p = config.stage == 3 ? model.persistent_elems : 0,
          .world = world,
          .node_ranks = std::clamp<int64_t>(layout.node_ranks, 1, world),
          .own = config.stage == 0 ? model.elems : Share(model.elems, world)};
}

int64_t WeightsBytes(const ZeroConfig& config, const Sizes& z) {
  if (config.stage < 3) return z.s * (z.n + z.f);
  const bool master_serves = config.compute == DType::kF32;
  const int64_t shard = master_serves ? 0 : Share(z.n - z.p, z.world);
  return z.s * (z.p + Share(z.f, z.world) + shard);
}

int64_t MomentsBytes(const ZeroConfig& config, const Sizes& z) {
  switch (config.optimizer) {
    case OptimizerType::kAdam:
    case OptimizerType::kAdamW:
      return 2 * kFloatBytes * z.own;
    case OptimizerType::kSgd:
      return config.sgd.momentum != 0 ? kFloatBytes * z.own : 0;
  }
  return 0;
}

// The hops whose encodings have feedback: one, or two of them with `both`.
int64_t FeedbackHops(const ZeroConfig& config, const Sizes& z) {
  const ErrorFeedbackMode mode = config.zero_pp.error_feedback;
  if (!config.quantized_gradients || mode == ErrorFeedbackMode::kOff || z.world == 1) return 0;
  const bool two = z.node_ranks > 1 && z.node_ranks < z.world;
  return mode == ErrorFeedbackMode::kBoth && two ? 2 : 1;
}

int64_t GradientsBytes(const ZeroConfig& config, const Sizes& z) {
  int64_t bytes = kFloatBytes * z.n;
  if (config.zero_pp.quant_period > 0) {
    bytes += FeedbackHops(config, z) * kFloatBytes * (z.c + Share(z.c, z.world));
  }
  if (config.stage > 0) bytes += kFloatBytes * z.own;
  if (config.zero_pp.reduce_every_micro_batch && config.accumulation_steps > 1) {
    bytes += kFloatBytes * z.own;
  }
  const DType wire = config.communication.value_or(config.compute);
  if (wire == DType::kF32) return bytes;
  const bool always_encoded = config.quantized_gradients && config.zero_pp.quant_period == 0 &&
                              config.zero_pp.quant_bits < 16;
  return bytes + SizeOf(wire) * (always_encoded ? z.n - z.c : z.n);
}

int64_t GatheredBytes(const ZeroConfig& config, const ModelSize& model, const Sizes& z) {
  if (config.stage < 3) return 0;
  const int64_t unit = model.largest_unit_elems;
  const int64_t live = SaturatingSum(config.max_live_elems, unit);
  const int64_t reused =
      SaturatingSum(config.max_reuse_distance_elems / 2 + 2 * unit, config.prefetch_bucket_elems);
  return z.s * std::min({z.n - z.p + z.f, live, reused});
}

int64_t ResidualElems(const ZeroConfig& config, const Sizes& z) {
  const int64_t hops = FeedbackHops(config, z);
  if (hops == 0 || z.node_ranks == z.world) return hops * z.c;
  return Share(z.c, z.node_ranks) + (hops - 1) * z.c;
}

int64_t ResidualBytes(ResidualType type, int64_t elems) {
  switch (type) {
    case ResidualType::kF32:
      return 4 * elems;
    case ResidualType::kBF16:
      return 2 * elems;
    case ResidualType::kInt8:  // a bf16 scale per 256
      return elems + 2 * Share(elems, 256);
  }
  return 0;
}

int64_t StagingBytes(const ZeroConfig& config, const Sizes& z) {
  const bool differences = (config.stage == 1 || config.stage == 2) && config.quantized_weights &&
                           config.zero_pp.quant_bits < 16;
  if (!differences) return 0;
  const int64_t elems =
      std::min(z.c, std::max(config.allgather_bucket_elems, config.reduce_bucket_elems));
  return kFloatBytes * (elems + Share(elems, z.world));
}

std::string Line(std::string_view name, int64_t bytes, std::string_view remark = "") {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 96> line;
  std::snprintf(line.data(), line.size(), "%-18.*s%10.1f %s%.*s\n", static_cast<int>(name.size()),
                name.data(), value, kUnits[unit], static_cast<int>(remark.size()), remark.data());
  return line.data();
}

}  // namespace

int64_t MemoryEstimate::total_bytes() const {
  return weights_bytes + master_bytes + moments_bytes + gradients_bytes + gathered_bytes +
         secondary_bytes + residuals_bytes + staging_bytes;
}

std::string MemoryEstimate::ToText() const {
  struct Purpose {
    std::string_view name;
    int64_t bytes;
    std::string_view remark;
  };
  const std::string_view where = offloaded ? " (offloaded)" : "";
  std::string text;
  for (const Purpose& purpose :
       {Purpose{"weights", weights_bytes, ""}, Purpose{"master weights", master_bytes, where},
        Purpose{"optimizer states", moments_bytes, where},
        Purpose{"gradients", gradients_bytes, ""}, Purpose{"gathered weights", gathered_bytes, ""},
        Purpose{"hpZ copy", secondary_bytes, ""}, Purpose{"residuals", residuals_bytes, ""},
        Purpose{"weight differences", staging_bytes, ""}}) {
    if (purpose.bytes > 0) text += Line(purpose.name, purpose.bytes, purpose.remark);
  }
  return text + Line("total", total_bytes());
}

ModelSize ModelSizeOf(const ShardMap& map) {
  ModelSize size;
  std::map<int, int64_t> units;
  for (const Slab& slab : map.slabs) {
    const bool trainable = slab.kind.trainable;
    (trainable ? size.elems : size.frozen_elems) += slab.elems;
    if (trainable && slab.kind.compressed) size.compressed_elems += slab.elems;
    if (slab.kind.unit >= 0) {
      units[slab.kind.unit] += slab.elems;
    } else if (trainable) {
      size.persistent_elems += slab.elems;
    }
  }
  for (const auto& [unit, elems] : units) {
    size.largest_unit_elems = std::max(size.largest_unit_elems, elems);
  }
  return size;
}

MemoryEstimate EstimateMemory(const ZeroConfig& config, const ModelSize& model,
                              const RankLayout& layout) {
  const Sizes z = SizesOf(config, model, layout);
  const bool secondary = config.stage == 3 && config.hpz_partition_size > 1;
  return {
      .weights_bytes = WeightsBytes(config, z),
      .master_bytes = kFloatBytes * z.own,
      .moments_bytes = MomentsBytes(config, z),
      .gradients_bytes = GradientsBytes(config, z),
      .gathered_bytes = GatheredBytes(config, model, z),
      .secondary_bytes = secondary ? z.s * Share(z.n - z.p + z.f, config.hpz_partition_size) : 0,
      .residuals_bytes = ResidualBytes(config.zero_pp.residual, ResidualElems(config, z)),
      .staging_bytes = StagingBytes(config, z),
      .offloaded = config.offload_optimizer.enabled};
}

}  // namespace zpp
