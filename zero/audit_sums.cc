#include <algorithm>
#include <cmath>
#include <string>

#include "common/buffer.h"
#include "zero/audit.h"

namespace zpp {
namespace {

double Squares(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

}  // namespace

void AuditSums::AddGradient(std::span<const float> true_gradient, std::span<const float> received) {
  for (size_t i = 0; i < true_gradient.size(); ++i) {
    const double t = true_gradient[i];
    const double r = received[i];
    const double diff = r - t;
    dot += t * r;
    true_sq += t * t;
    received_sq += r * r;
    diff_sq += diff * diff;
    max_abs_diff = std::max(max_abs_diff, std::fabs(diff));
    nonzero += t != 0 ? 1 : 0;
    zeroed += t != 0 && r == 0 ? 1 : 0;
  }
}

void AuditSums::AddReceived(std::span<const float> received) { received_sq += Squares(received); }

void AuditSums::AddResidual(std::span<const float> residual) { residual_sq += Squares(residual); }

Status AuditSums::AddReplica(std::span<const float> master, ConstVec replica) {
  if (!IsFloat(replica.dtype) || replica.elems != static_cast<int64_t>(master.size())) {
    return InvalidArgument("audit: a replica of " + std::to_string(replica.elems) +
                           " elements for a master of " + std::to_string(master.size()));
  }
  constexpr size_t kTile = 1024;
  float tile[kTile];
  const auto* bytes = static_cast<const std::byte*>(replica.data);
  const size_t elem_bytes = static_cast<size_t>(SizeOf(replica.dtype));
  for (size_t at = 0; at < master.size(); at += kTile) {
    const size_t elems = std::min(kTile, master.size() - at);
    ZPP_RETURN_IF_ERROR(Decode(QuantSpec::None(replica.dtype),
                               {bytes + at * elem_bytes, elems * elem_bytes},
                               {DType::kF32, tile, static_cast<int64_t>(elems)}));
    for (size_t i = 0; i < elems; ++i) {
      const double m = master[at + i];
      const double diff = static_cast<double>(tile[i]) - m;
      master_sq += m * m;
      replica_diff_sq += diff * diff;
    }
  }
  return {};
}

void AuditSums::Merge(const AuditSums& other) {
  dot += other.dot;
  true_sq += other.true_sq;
  received_sq += other.received_sq;
  diff_sq += other.diff_sq;
  max_abs_diff = std::max(max_abs_diff, other.max_abs_diff);
  nonzero += other.nonzero;
  zeroed += other.zeroed;
  unseen_rows += other.unseen_rows;
  unseen_hit += other.unseen_hit;
  summed_true_sq += other.summed_true_sq;
  summed_diff_sq += other.summed_diff_sq;
  update_true_sq += other.update_true_sq;
  update_diff_sq += other.update_diff_sq;
  residual_sq += other.residual_sq;
  master_sq += other.master_sq;
  replica_diff_sq += other.replica_diff_sq;
  inner.Merge(other.inner);
  outer.Merge(other.outer);
  weights.Merge(other.weights);
  coarser.Merge(other.coarser);
  period.Merge(other.period);
}

Result<ErrorStats> ProbeCoarser(const QuantSpec& coarser, std::span<const float> values) {
  ZPP_RETURN_IF_ERROR(Validate(coarser));
  const int64_t elems = static_cast<int64_t>(values.size());
  ZPP_ASSIGN_OR_RETURN(Buffer payload,
                       Buffer::Allocate(static_cast<size_t>(PayloadBytes(coarser, elems))));
  ErrorStats stats;
  ZPP_RETURN_IF_ERROR(
      Encode(coarser, {DType::kF32, values.data(), elems}, payload.span(), {}, &stats));
  return stats;
}

}  // namespace zpp
