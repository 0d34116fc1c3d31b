// The audit: how wrong compressed communication was, per bucket and over time.
//
// At an audited step each rank adds up what it can see of each bucket (AuditSums); the ranks gather
// these as bytes and merge them in rank order, so that all derive the same figures, record them and
// act on them alike.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/status.h"
#include "quant/codec.h"
#include "zero/optimizer.h"
#include "zero/parameters.h"
#include "zero/shard_map.h"

namespace zpp {

struct AuditOptions {
  // Compare with the uncompressed gradient every so many optimizer steps; that costs one
  // uncompressed reduction each time. 0: only what costs nothing, the encoders' statistics and the
  // drift of replicas, at the exact steps of quant_period.
  int64_t every = 0;
  // Follow Adam's moments and the summed error under true gradients too. Needs every = 1 and 24
  // bytes per element of the shard.
  bool update_error = false;
  // Above it every second audited step is forgotten, and from then on only every second is kept, so
  // that records always span the whole run.
  int64_t max_records = 16384;

  bool operator==(const AuditOptions&) const = default;
};

// What adds up over shards, ranks and buckets. Trivially copyable, in the machine's own layout.
struct AuditSums {
  // Of the averaged gradient before clipping: as it is uncompressed ("true") and as it arrived.
  double dot = 0;
  double true_sq = 0;
  double received_sq = 0;
  double diff_sq = 0;
  double max_abs_diff = 0;
  int64_t nonzero = 0;      // elements of the true gradient
  int64_t zeroed = 0;       // of those, received as zero
  int64_t unseen_rows = 0;  // whose true gradient has always been zero
  int64_t unseen_hit = 0;   // of those, received something else
  // Of the sums over all steps so far, as they were applied, and of Adam's update.
  double summed_true_sq = 0;
  double summed_diff_sq = 0;
  double update_true_sq = 0;
  double update_diff_sq = 0;
  // What error feedback still owes; master weights and what replicas differ from them.
  double residual_sq = 0;
  double master_sq = 0;
  double replica_diff_sq = 0;
  // The encoders', since the last audit: hops inside a node, the outermost hop (the only one of a
  // flat layout), weights, and the outermost hop had it been one level coarser.
  ErrorStats inner;
  ErrorStats outer;
  ErrorStats weights;
  ErrorStats coarser;
  // Of the outermost hop since the last exact step, whatever was audited in between: with `coarser`
  // what changes of bits rest on.
  ErrorStats period;

  // true_gradient and received: the same elements of one shard, equally long.
  void AddGradient(std::span<const float> true_gradient, std::span<const float> received);
  // What arrived, where the true gradient is not known: at exact steps, which leave nothing out.
  void AddReceived(std::span<const float> received);
  void AddResidual(std::span<const float> residual);
  // kInvalidArgument, before anything is added, unless replica is as long and of a float type.
  Status AddReplica(std::span<const float> master, ConstVec replica);
  // Not in all orders the same bits: merge in rank order.
  void Merge(const AuditSums& other);
};
static_assert(std::is_trivially_copyable_v<AuditSums>);

// Error of `values` encoded with `coarser`, without sending anything: what BitControl compares.
// Cost: one encode. kInvalidArgument for a spec that Validate() refuses.
Result<ErrorStats> ProbeCoarser(const QuantSpec& coarser, std::span<const float> values);

// The figures of one bucket at one step, equal on all ranks. Relative errors are L2. What was not
// measured is absent: what needs the true gradient, and what nobody encoded or kept.
struct BucketAudit {
  int64_t step = 0;
  int bucket = 0;  // kAllBuckets: all together
  int bits = 0;    // of the outermost hop; 0 for kAllBuckets
  bool exact = false;
  // Of the outermost hop's encoders, decode(h) against h with the residual in it: so feedback is
  // not punished.
  double rel_error = 0;
  double zeroed_share = 0;  // nonzero elements sent as zero
  double max_abs_error = 0;
  int64_t clipped = 0;
  double inner_rel_error = 0;
  double weight_rel_error = 0;
  // ||what residuals owe|| / ||the gradient that arrived||: the error that has accumulated.
  std::optional<double> accumulated_error;
  std::optional<double> drift;  // ||replica - master|| / ||master||
  // Received against true.
  std::optional<double> cosine;
  std::optional<double> true_rel_error;  // one step's; feedback makes it larger, not worse
  std::optional<double> final_zeroed_share;
  std::optional<int64_t> unseen_rows_hit;
  std::optional<double> sum_error;     // ||sum received - sum true|| / ||sum true||, as applied
  std::optional<double> update_error;  // of Adam's update

  static constexpr int kAllBuckets = -1;
};

// Part of a shard whose rows are tracked: elements first .. first + elems of the shard belong to
// rows of row_elems, the first of which starts first_in_row elements before them.
struct RowRun {
  int64_t first = 0;
  int64_t elems = 0;
  int64_t row_elems = 1;
  int64_t first_in_row = 0;
  bool operator==(const RowRun&) const = default;
};
// Of one rank's shard of one bucket.
std::vector<RowRun> RowsOfShard(const ShardMap& map, std::span<const ParamSpec> params, int bucket,
                                int rank);

struct AuditBucket {
  std::string name;
  bool compressed = true;  // its gradients are
  int64_t shard_elems = 0;
  std::vector<RowRun> rows = {};
};

// One rank's whole shard of a bucket, averaged, in the units of one step (loss scale and all).
struct AuditGradients {
  std::span<const float> true_gradient;
  std::span<const float> received;  // through compression
  std::span<const float> applied;   // by the optimizer: at an exact step not what was `received`
};

// Keeps the records, and what must be remembered from step to step to make them.
//
//   if (audit.Due(step, exact)):
//     per bucket:  AuditSums sums
//                  audit.AddGradient(b, gradients, scale, sums)  if NeedsTrueGradient(step)
//                  sums.AddResidual(...), AddReplica(...), sums.outer.Merge(stats), ...
//     gather all sums; merge per bucket in rank order;  audit.Record(step, exact, bits, merged)
// Skipped steps are not told.
class Audit {
 public:
  Audit() = default;
  // `adam` is for update_error: only its moments matter, not lr or decay. kInvalidArgument in one
  // sentence; kResourceExhausted.
  static Result<Audit> Create(const AuditOptions& options, std::vector<AuditBucket> buckets,
                              const AdamConfig& adam = {});

  const AuditOptions& options() const { return options_; }
  bool Due(int64_t step, bool exact) const;
  bool NeedsTrueGradient(int64_t step) const;

  // `scale` is what the optimizer multiplies gradients by: clip coefficient / loss scale.
  // kInvalidArgument for wrong lengths or a scale that is not finite.
  Status AddGradient(int bucket, const AuditGradients& gradients, double scale, AuditSums& sums);
  // One entry of each per bucket, merged over ranks: adds a record per bucket and one of all: of
  // the gradients those that are compressed, of the weights every one. kInvalidArgument for a wrong
  // number.
  Status Record(int64_t step, bool exact, std::span<const int> bits,
                std::span<const AuditSums> merged);
  // After weights were loaded: all rows count as seen, moments and sums start anew. Records stay.
  void Restart();

  // In the order of steps; per step kAllBuckets first, then the buckets.
  const std::vector<BucketAudit>& records() const { return records_; }
  // Of the last audited step, kept among the records or not; null when there is none.
  const BucketAudit* Last(int bucket = BucketAudit::kAllBuckets) const;
  const std::string& bucket_name(int bucket) const;
  int64_t bytes() const;  // held for the comparison with true gradients
  // {"every", "update_error", "buckets": [names], "records": [{"step", "bucket": index or "all",
  // ...}]}; what was not measured is left out.
  nlohmann::json ToJson() const;

 private:
  // Of one shard, from step to step.
  struct Shard {
    std::vector<uint8_t> seen;  // per row that is tracked
    std::vector<float> summed_true, summed_diff;
    std::vector<float> true_m, true_v, applied_m, applied_v;
    int64_t steps = 0;
    std::array<std::vector<float>*, 6> vectors() {
      return {&summed_true, &summed_diff, &true_m, &true_v, &applied_m, &applied_v};
    }
  };
  void AddRows(const AuditBucket& bucket, std::span<const float> true_gradient,
               std::span<const float> received, Shard& shard, AuditSums& sums) const;
  void AddSummed(const AuditGradients& gradients, double scale, Shard& shard,
                 AuditSums& sums) const;
  void AddUpdate(const AuditGradients& gradients, double scale, Shard& shard,
                 AuditSums& sums) const;
  bool Thin();

  AuditOptions options_;
  std::vector<AuditBucket> buckets_;
  AdamConfig adam_;
  std::vector<Shard> shards_;
  std::vector<BucketAudit> records_;
  std::vector<BucketAudit> last_;  // kAllBuckets first
  int64_t recorded_steps_ = 0;
  int64_t stride_ = 1;  // of the recorded steps, every so many are kept
};

}  // namespace zpp
