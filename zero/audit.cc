#include "zero/audit.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

namespace zpp {
namespace {

constexpr int64_t kFloatsPerElem = 6;  // of update_error: two sums, two moments twice

// ||a|| / ||b|| of their squares; absent where b is nothing.
std::optional<double> Share(double a_sq, double b_sq) {
  if (!(b_sq > 0)) return std::nullopt;
  return std::sqrt(a_sq / b_sq);
}

double Part(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

bool AnyNonzero(std::span<const float> values) {
  return std::any_of(values.begin(), values.end(), [](float value) { return value != 0; });
}

Status CheckBucket(const AuditBucket& bucket) {
  int64_t end = 0;
  for (const RowRun& run : bucket.rows) {
    const bool sound = run.first >= end && run.elems >= 0 && run.row_elems > 0 &&
                       run.first_in_row >= 0 && run.first_in_row < run.row_elems;
    if (!sound || run.first + run.elems > bucket.shard_elems) {
      return InvalidArgument("audit: the rows of '" + bucket.name + "' do not lie in its shard");
    }
    end = run.first + run.elems;
  }
  return {};
}

int64_t CountRows(const AuditBucket& bucket) {
  int64_t rows = 0;
  for (const RowRun& run : bucket.rows) {
    rows += (run.first_in_row + run.elems + run.row_elems - 1) / run.row_elems;
  }
  return rows;
}

AuditSums WeightsOnly(const AuditSums& sums) {
  AuditSums weights;
  weights.weights = sums.weights;
  weights.master_sq = sums.master_sq;
  weights.replica_diff_sq = sums.replica_diff_sq;
  return weights;
}

BucketAudit Derive(const AuditSums& sums) {
  BucketAudit record;
  record.rel_error = sums.outer.relative_error();
  record.zeroed_share = Part(sums.outer.zeroed, sums.outer.nonzero);
  record.max_abs_error = sums.outer.max_abs_error;
  record.clipped = sums.outer.clipped;
  record.inner_rel_error = sums.inner.relative_error();
  record.weight_rel_error = sums.weights.relative_error();
  if (sums.residual_sq > 0) record.accumulated_error = Share(sums.residual_sq, sums.received_sq);
  record.drift = Share(sums.replica_diff_sq, sums.master_sq);
  record.true_rel_error = Share(sums.diff_sq, sums.true_sq);
  if (sums.true_sq > 0) record.final_zeroed_share = Part(sums.zeroed, sums.nonzero);
  if (sums.true_sq > 0 && sums.received_sq > 0) {
    record.cosine = sums.dot / std::sqrt(sums.true_sq) / std::sqrt(sums.received_sq);
  }
  record.sum_error = Share(sums.summed_diff_sq, sums.summed_true_sq);
  record.update_error = Share(sums.update_diff_sq, sums.update_true_sq);
  return record;
}

nlohmann::json RecordJson(const BucketAudit& record) {
  nlohmann::json json = {{"step", record.step},
                         {"exact", record.exact},
                         {"rel_error", record.rel_error},
                         {"zeroed_share", record.zeroed_share},
                         {"max_abs_error", record.max_abs_error},
                         {"clipped", record.clipped},
                         {"inner_rel_error", record.inner_rel_error},
                         {"weight_rel_error", record.weight_rel_error}};
  if (record.bucket == BucketAudit::kAllBuckets) {
    json["bucket"] = "all";
  } else {
    json["bucket"] = record.bucket;
    json["bits"] = record.bits;
  }
  const auto add = [&](const char* key, const auto& value) {
    if (value) json[key] = *value;
  };
  add("accumulated_error", record.accumulated_error);
  add("drift", record.drift);
  add("cosine", record.cosine);
  add("true_rel_error", record.true_rel_error);
  add("final_zeroed_share", record.final_zeroed_share);
  add("unseen_rows_hit", record.unseen_rows_hit);
  add("sum_error", record.sum_error);
  add("update_error", record.update_error);
  return json;
}

// Adam's step of one element without learning rate and decay.
class AdamMoments {
 public:
  AdamMoments(const AdamConfig& adam, int64_t step) : adam_(adam) {
    const double t = static_cast<double>(step);
    c1_ = adam.bias_correction ? 1 - std::pow(adam.beta1, t) : 1;
    c2_ = adam.bias_correction ? std::sqrt(1 - std::pow(adam.beta2, t)) : 1;
  }
  double Update(double gradient, float& m, float& v) const {
    m = static_cast<float>(adam_.beta1 * m + (1 - adam_.beta1) * gradient);
    v = static_cast<float>(adam_.beta2 * v + (1 - adam_.beta2) * gradient * gradient);
    const double divisor = std::sqrt(static_cast<double>(v)) / c2_ + adam_.eps;
    return divisor > 0 ? m / c1_ / divisor : 0;
  }

 private:
  const AdamConfig& adam_;
  double c1_ = 1, c2_ = 1;
};

}  // namespace

std::vector<RowRun> RowsOfShard(const ShardMap& map, std::span<const ParamSpec> params, int bucket,
                                int rank) {
  const Bucket& of = map.buckets[static_cast<size_t>(bucket)];
  const int64_t shard_first = of.shard_first[static_cast<size_t>(rank)];
  const int64_t shard_end = shard_first + of.shard_elems[static_cast<size_t>(rank)];
  std::vector<RowRun> rows;
  for (const ParamPiece& piece : of.pieces) {
    const int64_t first = std::max(piece.bucket_first, shard_first);
    const int64_t end = std::min(piece.bucket_first + piece.elems, shard_end);
    if (first >= end) continue;
    const int64_t row_elems = params[static_cast<size_t>(piece.param)].row_elems();
    const int64_t in_param = piece.param_first + first - piece.bucket_first;
    rows.push_back({.first = first - shard_first,
                    .elems = end - first,
                    .row_elems = row_elems,
                    .first_in_row = in_param % row_elems});
  }
  return rows;
}

Result<Audit> Audit::Create(const AuditOptions& options, std::vector<AuditBucket> buckets,
                            const AdamConfig& adam) {
  if (options.every < 0) return InvalidArgument("audit: every must not be negative");
  if (options.max_records < 1) return InvalidArgument("audit: max_records must be at least 1");
  if (options.update_error && options.every != 1) {
    return InvalidArgument("audit: update_error follows every step, so every must be 1");
  }
  for (const AuditBucket& bucket : buckets) ZPP_RETURN_IF_ERROR(CheckBucket(bucket));
  Audit audit;
  audit.options_ = options;
  audit.adam_ = adam;
  audit.buckets_ = std::move(buckets);
  try {
    for (const AuditBucket& bucket : audit.buckets_) {
      Shard& shard = audit.shards_.emplace_back();
      if (options.every == 1) shard.seen.resize(static_cast<size_t>(CountRows(bucket)));
      if (!options.update_error) continue;
      for (std::vector<float>* vector : shard.vectors()) {
        vector->resize(static_cast<size_t>(bucket.shard_elems));
      }
    }
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, "audit: no memory to follow Adam's moments");
  }
  return audit;
}

bool Audit::Due(int64_t step, bool exact) const { return exact || NeedsTrueGradient(step); }

bool Audit::NeedsTrueGradient(int64_t step) const {
  return options_.every > 0 && step % options_.every == 0;
}

Status Audit::AddGradient(int bucket, const AuditGradients& gradients, double scale,
                          AuditSums& sums) {
  const AuditBucket& of = buckets_[static_cast<size_t>(bucket)];
  const size_t elems = static_cast<size_t>(of.shard_elems);
  const auto& [true_gradient, received, applied] = gradients;
  if (true_gradient.size() != elems || received.size() != elems || applied.size() != elems) {
    return InvalidArgument("audit: gradients of " + std::to_string(true_gradient.size()) + ", " +
                           std::to_string(received.size()) + " and " +
                           std::to_string(applied.size()) + " elements for the shard of '" +
                           of.name + "', which has " + std::to_string(elems));
  }
  if (!std::isfinite(scale)) return InvalidArgument("audit: the gradients' scale is not finite");
  sums.AddGradient(true_gradient, received);
  Shard& shard = shards_[static_cast<size_t>(bucket)];
  if (options_.every == 1) AddRows(of, true_gradient, received, shard, sums);
  if (!options_.update_error) return {};
  AddSummed(gradients, scale, shard, sums);
  AddUpdate(gradients, scale, shard, sums);
  return {};
}

void Audit::AddRows(const AuditBucket& bucket, std::span<const float> true_gradient,
                    std::span<const float> received, Shard& shard, AuditSums& sums) const {
  size_t row = 0;
  for (const RowRun& run : bucket.rows) {
    int64_t at = run.first;
    const int64_t end = run.first + run.elems;
    for (int64_t left = run.row_elems - run.first_in_row; at < end; left = run.row_elems, ++row) {
      const size_t first = static_cast<size_t>(at);
      const size_t elems = static_cast<size_t>(std::min(left, end - at));
      if (AnyNonzero(true_gradient.subspan(first, elems))) shard.seen[row] = 1;
      if (shard.seen[row] == 0) {
        ++sums.unseen_rows;
        sums.unseen_hit += AnyNonzero(received.subspan(first, elems)) ? 1 : 0;
      }
      at += static_cast<int64_t>(elems);
    }
  }
}

void Audit::AddSummed(const AuditGradients& gradients, double scale, Shard& shard,
                      AuditSums& sums) const {
  const auto& [true_gradient, received, applied] = gradients;
  for (size_t i = 0; i < true_gradient.size(); ++i) {
    const double diff = static_cast<double>(applied[i]) - true_gradient[i];
    float& summed_true = shard.summed_true[i];
    float& summed_diff = shard.summed_diff[i];
    summed_true = static_cast<float>(summed_true + scale * true_gradient[i]);
    summed_diff = static_cast<float>(summed_diff + scale * diff);
    sums.summed_true_sq += static_cast<double>(summed_true) * summed_true;
    sums.summed_diff_sq += static_cast<double>(summed_diff) * summed_diff;
  }
}

void Audit::AddUpdate(const AuditGradients& gradients, double scale, Shard& shard,
                      AuditSums& sums) const {
  const auto& [true_gradient, received, applied] = gradients;
  const AdamMoments moments(adam_, ++shard.steps);
  for (size_t i = 0; i < true_gradient.size(); ++i) {
    const double want = moments.Update(scale * true_gradient[i], shard.true_m[i], shard.true_v[i]);
    const double got = moments.Update(scale * applied[i], shard.applied_m[i], shard.applied_v[i]);
    sums.update_true_sq += want * want;
    sums.update_diff_sq += (got - want) * (got - want);
  }
}

Status Audit::Record(int64_t step, bool exact, std::span<const int> bits,
                     std::span<const AuditSums> merged) {
  if (bits.size() != buckets_.size() || merged.size() != buckets_.size()) {
    return InvalidArgument("audit: figures of " + std::to_string(merged.size()) +
                           " buckets, but there are " + std::to_string(buckets_.size()));
  }
  last_.assign(1, {});
  AuditSums all;
  for (size_t b = 0; b < merged.size(); ++b) {
    AuditSums counted = merged[b];
    if (!buckets_[b].compressed) counted = WeightsOnly(counted);
    all.Merge(counted);
    BucketAudit& record = last_.emplace_back(Derive(merged[b]));
    record.bucket = static_cast<int>(b);
    record.bits = bits[b];
    if (options_.every == 1) record.unseen_rows_hit = merged[b].unseen_hit;
  }
  last_[0] = Derive(all);
  last_[0].bucket = BucketAudit::kAllBuckets;
  if (options_.every == 1) last_[0].unseen_rows_hit = all.unseen_hit;
  for (BucketAudit& record : last_) {
    record.step = step;
    record.exact = exact;
  }
  if (recorded_steps_++ % stride_ == 0) {
    records_.insert(records_.end(), last_.begin(), last_.end());
  }
  while (static_cast<int64_t>(records_.size()) > options_.max_records && Thin()) {
  }
  return {};
}

// Of the kept steps the first, third, ... stay. False when there is only one.
bool Audit::Thin() {
  const size_t per_step = last_.size();
  const size_t steps = records_.size() / per_step;
  if (steps < 2) return false;
  std::vector<BucketAudit> kept;
  for (size_t i = 0; i < steps; i += 2) {
    const auto first = records_.begin() + static_cast<std::ptrdiff_t>(i * per_step);
    kept.insert(kept.end(), first, first + static_cast<std::ptrdiff_t>(per_step));
  }
  records_ = std::move(kept);
  stride_ *= 2;
  return true;
}

void Audit::Restart() {
  for (Shard& shard : shards_) {
    std::fill(shard.seen.begin(), shard.seen.end(), uint8_t{1});
    for (std::vector<float>* vector : shard.vectors()) {
      std::fill(vector->begin(), vector->end(), 0.0f);
    }
    shard.steps = 0;
  }
}

const BucketAudit* Audit::Last(int bucket) const {
  const size_t at = static_cast<size_t>(bucket + 1);
  return at < last_.size() ? &last_[at] : nullptr;
}

const std::string& Audit::bucket_name(int bucket) const {
  return buckets_[static_cast<size_t>(bucket)].name;
}

int64_t Audit::bytes() const {
  int64_t bytes = 0;
  for (size_t b = 0; b < shards_.size(); ++b) {
    bytes += static_cast<int64_t>(shards_[b].seen.size());
    if (options_.update_error) {
      bytes += kFloatsPerElem * static_cast<int64_t>(sizeof(float)) * buckets_[b].shard_elems;
    }
  }
  return bytes;
}

nlohmann::json Audit::ToJson() const {
  nlohmann::json names = nlohmann::json::array();
  for (const AuditBucket& bucket : buckets_) names.push_back(bucket.name);
  nlohmann::json records = nlohmann::json::array();
  for (const BucketAudit& record : records_) records.push_back(RecordJson(record));
  return {{"every", options_.every},
          {"update_error", options_.update_error},
          {"buckets", std::move(names)},
          {"records", std::move(records)}};
}

}  // namespace zpp
