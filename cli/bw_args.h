// What `zpp bw` is asked to measure: the flags as typed, and what they mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/bootstrap/launch_env.h"
#include "collectives/plan/plan.h"
#include "collectives/policy.h"
#include "common/dtype.h"
#include "common/status.h"

namespace zpp::cli {

// Flags that mean what was typed.
struct PlainFlags {
  std::string data;
  bool explain = false;
  bool report_gbits = false;
  std::string json;
};

// As CLI11 leaves them; empty text and absent numbers mean "not given".
struct BwFlags : PlainFlags {
  std::string collective;
  std::optional<int> ranks, nodes;
  std::string min_size, max_size, one_size;
  std::optional<double> factor;
  bool all_sizes = false;
  std::string dtype;  // fp32; of codec: fp32 and bf16
  std::string op;
  std::optional<int> iters, warmup;
  std::optional<double> seconds;
  std::string intra, inter;
  std::optional<int> block;
  std::string code, rounding;
  bool flat = false;
  std::optional<double> inter_gbits, link_gbits;
  std::optional<double> timeout_s;
  std::optional<int> threads;
  std::string chunk;
  bool all_targets = false;  // codec only
};

struct BwArgs : PlainFlags {
  CollectiveKind kind = CollectiveKind::kAllGather;
  int ranks = 0;                     // to start on this host; 0: those that a launcher started
  int ranks_here = 1;                // that share this host's memory, as far as is known
  int nodes = 0;                     // declared; 0: by the environment, or found out
  std::vector<int64_t> sizes_bytes;  // of the whole vector, ascending
  bool size_of_data = false;         // no size was asked for: the file's
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  int iters = 20;
  int warmup = 3;
  double seconds = 0;       // above 0: per size, instead of iters
  CollectivePolicy policy;  // of the compressed run; lossless: there is none
  double inter_gbits = 0;   // what the throttle lets through; 0: none
  double link_gbits = 0;    // what is known about the link between nodes; 0: nothing
  double timeout_s = 60;
  int threads = 1;
  int64_t chunk_bytes = 0;

  bool reduces() const {
    return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllReduce;
  }
};

// One sentence about the first flag that is wrong, whatever the host. `launched`: what a launcher's
// variables say, null without any; then no ranks are started unless asked for.
Result<BwArgs> ResolveBw(const BwFlags& flags, const LaunchEnv* launched);

// What depends on this host: the size of the data file, and whether the memory is there. Hosts of a
// job may differ.
Status ResolveHere(BwArgs* args);

// "fp32", "fp16" or "bf16" after -d.
Result<DType> ParseFloatType(const std::string& text);

// --block, --code and --rounding, whether or not anything is compressed.
Status CheckSpecFlags(const BwFlags& flags);
// The same on top of an encoding; they have been checked.
QuantSpec WithSpecFlags(const BwFlags& flags, QuantSpec spec);

bool AsksForSizes(const BwFlags& flags);
// -b/-e/-f, -s, -a, or the default of 1M to 64M by factors of 4; ascending.
Result<std::vector<int64_t>> ResolveSizes(const BwFlags& flags);

// Elements that are sent for `size_bytes`: at least one per rank, a multiple of the world where
// every rank owns an equal share.
int64_t CountFor(CollectiveKind kind, int64_t size_bytes, DType dtype, int world);

}  // namespace zpp::cli
