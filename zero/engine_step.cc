// What Step() does once all gradients are there.
#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/gather_values.h"
#include "zero/compression.h"
#include "zero/internal/engine_impl.h"
#include "zero/internal/plain_math.h"

namespace zpp {
namespace {

using internal::ElemRange;
using internal::StepFigures;

constexpr double kClipEpsilon = 1e-6;  // as PyTorch's clip_grad_norm_

}  // namespace

Result<StepReport> ZeroEngine::Impl::Step() {
  if (reducer_->micro_batch() != context_.config.accumulation_steps) {
    return InvalidArgument("Step: " + std::to_string(reducer_->micro_batch()) + " of " +
                           std::to_string(context_.config.accumulation_steps) +
                           " micro-batches have ended");
  }
  ZPP_RETURN_IF_ERROR(broken_);
  // What can be put right is refused before anything has changed.
  ZPP_RETURN_IF_ERROR(gatherer_->CheckReleased());
  ZPP_RETURN_IF_ERROR(internal::ValidateOptimizer(context_.config));
  Result<StepReport> report = FinishStep();
  ZPP_RETURN_IF_ERROR(Keep(report.status()));
  return report;
}

Result<StepReport> ZeroEngine::Impl::FinishStep() {
  ZPP_RETURN_IF_ERROR(reducer_->Finish());
  ZPP_ASSIGN_OR_RETURN(const Outcome outcome, Judge());
  StepReport report = ReportOf(outcome);
  // After a skipped step too: the next one gathers in its own way, exactly or with other random
  // numbers, as it would after a restart.
  ZPP_RETURN_IF_ERROR(gatherer_->Invalidate());
  ZPP_RETURN_IF_ERROR(outcome.overflow ? Skip() : Apply(outcome));
  reducer_->EndStep();
  report.sent_bytes = TakeTraffic();
  ++steps_;
  BeginStep();
  return report;
}

// Of this rank's part. Stage 0 has the whole gradient on every rank.
StepFigures ZeroEngine::Impl::OwnFigures() {
  StepFigures figures;
  ExactSum uncounted;  // copies of what another rank counts: an overflow counts here too
  for (const int b : context_.map.reduce_order) {
    const ElemRange own = context_.Own(b);
    const std::span<const float> gradient = reducer_->gradient(b);
    for (const ParamPiece& whole : context_.bucket(b).pieces) {
      const ParamPiece piece = internal::Intersect(whole, own);
      if (piece.elems <= 0) continue;
      const bool counts = context_.params[static_cast<size_t>(piece.param)].counts_in_norm;
      (counts ? figures.squares : uncounted)
          .AddSquares(gradient.subspan(static_cast<size_t>(piece.bucket_first - own.first),
                                       static_cast<size_t>(piece.elems)));
    }
    AuditSums& since_audit = since_audit_[static_cast<size_t>(b)];
    since_audit.inner.Merge(reducer_->inner_stats(b));
    since_audit.outer.Merge(reducer_->outer_stats(b));
    if (!exact_) since_audit.period.Merge(reducer_->outer_stats(b));
    figures.gradients.Merge(reducer_->inner_stats(b));
    figures.gradients.Merge(reducer_->outer_stats(b));
  }
  figures.squares.AddNonfinite(uncounted.nonfinite());
  figures.weights = store_->TakeStats();
  figures.weights.Merge(gatherer_->TakeStats());
  weights_since_audit_.Merge(figures.weights);
  return figures;
}

Result<ZeroEngine::Impl::Outcome> ZeroEngine::Impl::Judge() {
  Outcome outcome;
  outcome.figures = OwnFigures();
  if (context_.config.stage > 0) {
    ZPP_ASSIGN_OR_RETURN(outcome.figures, internal::Exchange(*context_.comm, outcome.figures));
  }
  if (norm_group_ != nullptr) {
    ZPP_ASSIGN_OR_RETURN(outcome.figures, internal::Exchange(*norm_group_, outcome.figures));
  }
  const double units = scaler_.scale() * context_.config.accumulation_steps;
  outcome.overflow = outcome.figures.squares.nonfinite() > 0;
  outcome.norm = outcome.overflow ? std::numeric_limits<double>::quiet_NaN()
                                  : outcome.figures.squares.Norm() / units;
  const double limit = context_.config.gradient_clipping;
  if (limit > 0 && outcome.norm > limit) outcome.clip = limit / (outcome.norm + kClipEpsilon);
  outcome.grad_scale = static_cast<float>(outcome.clip / units);
  return outcome;
}

StepReport ZeroEngine::Impl::ReportOf(const Outcome& outcome) {
  return {.step = steps_ + 1,
          .skipped = outcome.overflow,
          .exact = exact_,
          .grad_norm = outcome.norm,
          .clip_coefficient = outcome.clip,
          .loss_scale = scaler_.scale(),
          .gradient_rel_error = outcome.figures.gradients.relative_error(),
          .weight_rel_error = outcome.figures.weights.relative_error(),
          .sent_bytes = {}};
}

Status ZeroEngine::Impl::Skip() {
  reducer_->DropResiduals();
  residual_factor_ = 1;
  return scaler_.Update(true);
}

Status ZeroEngine::Impl::Apply(const Outcome& outcome) {
  ++applied_;
  for (const int b : context_.map.reduce_order) {
    ZPP_RETURN_IF_ERROR(owned_->Update(context_, b, applied_, outcome.grad_scale,
                                       reducer_->gradient(b), store_->optimizer_output(b, exact_)));
  }
  ZPP_RETURN_IF_ERROR(store_->Refresh(*owned_, steps_ + 1, exact_));
  if (audit_.Due(steps_ + 1, exact_)) ZPP_RETURN_IF_ERROR(RunAudit(outcome));
  const double scale_before = scaler_.scale();
  ZPP_RETURN_IF_ERROR(scaler_.Update(false));
  residual_factor_ = carry_.Factor(outcome.clip, scaler_.scale() / scale_before);
  return reducer_->ScaleResiduals(residual_factor_);
}

Result<AuditSums> ZeroEngine::Impl::SumsOf(int bucket, const Outcome& outcome) {
  AuditSums& since_audit = since_audit_[static_cast<size_t>(bucket)];
  AuditSums sums = std::exchange(since_audit, {});
  if (!exact_) since_audit.period = sums.period;
  if (reducer_->compresses(bucket)) {
    if (audit_.NeedsTrueGradient(steps_ + 1)) {
      ZPP_RETURN_IF_ERROR(audit_.AddGradient(bucket,
                                             {.true_gradient = reducer_->truth(bucket),
                                              .received = reducer_->received(bucket),
                                              .applied = reducer_->gradient(bucket)},
                                             outcome.grad_scale, sums));
    } else {
      sums.AddReceived(reducer_->gradient(bucket));
    }
    sums.residual_sq += reducer_->flushed_sq(bucket);
    for (const ReduceFeedback::Piece& piece : reducer_->feedback(bucket).pieces()) {
      std::vector<float> residual(static_cast<size_t>(piece.elems));
      ZPP_RETURN_IF_ERROR(piece.residual.Read(residual));
      const float unit = piece.averaged ? 1 : 1 / static_cast<float>(context_.map.world);
      for (float& value : residual) value *= unit;
      sums.AddResidual(residual);
    }
    if (exact_ && reducer_->bits(bucket) > context_.config.zero_pp.quant_bits) {
      const int coarser = CoarserBits(reducer_->bits(bucket));
      ZPP_ASSIGN_OR_RETURN(
          sums.coarser,
          ProbeCoarser(GradientPolicy(context_.config, context_.kind(bucket), coarser).inter,
                       reducer_->gradient(bucket)));
    }
  }
  if (SendsDifferences(context_.config, context_.kind(bucket))) {
    ZPP_RETURN_IF_ERROR(
        sums.AddReplica(owned_->master(bucket), internal::AsConst(store_->own(bucket))));
  }
  return sums;
}

// Every rank derives the same figures, so all change the bits alike.
Status ZeroEngine::Impl::RunAudit(const Outcome& outcome) {
  const auto buckets = static_cast<size_t>(context_.num_buckets());
  if (buckets == 0) return {};
  std::vector<AuditSums> mine;
  std::vector<int> bits;
  for (int b = 0; b < context_.num_buckets(); ++b) {
    ZPP_ASSIGN_OR_RETURN(AuditSums sums, SumsOf(b, outcome));
    if (b == 0) sums.weights = std::exchange(weights_since_audit_, {});
    mine.push_back(sums);
    bits.push_back(reducer_->bits(b));
  }
  ZPP_ASSIGN_OR_RETURN(const std::vector<AuditSums> all, GatherValues(*context_.comm, mine));
  std::vector<AuditSums> merged(buckets);
  for (size_t i = 0; i < all.size(); ++i) merged[i % buckets].Merge(all[i]);
  ZPP_RETURN_IF_ERROR(audit_.Record(steps_ + 1, exact_, bits, merged));
  return ControlBits(merged);
}

Status ZeroEngine::Impl::ControlBits(std::span<const AuditSums> merged) {
  if (!exact_ || context_.config.zero_pp.max_rel_error <= 0) return {};
  for (int b = 0; b < context_.num_buckets(); ++b) {
    if (!reducer_->compresses(b)) continue;
    const AuditSums& sums = merged[static_cast<size_t>(b)];
    if (bits_.Observe(b, sums.period, sums.coarser)) reducer_->set_bits(b, bits_.bits(b));
  }
  return {};
}

void ZeroEngine::Impl::RestartErrorControl() {
  audit_.Restart();
  std::fill(since_audit_.begin(), since_audit_.end(), AuditSums());
  weights_since_audit_ = {};
  bits_.Reset();
  ApplyBits();
}

void ZeroEngine::Impl::ApplyBits() {
  for (int b = 0; b < context_.num_buckets(); ++b) {
    if (reducer_->compresses(b)) reducer_->set_bits(b, bits_.bits(b));
  }
}

void ZeroEngine::Impl::NoteStart() {
  if (!under_way_) TakeTraffic();
  under_way_ = true;
}

std::vector<int64_t> ZeroEngine::Impl::TakeTraffic() {
  std::vector<int64_t> now = context_.comm->traffic().sent_bytes;
  const std::vector<int64_t> secondary = gatherer_->secondary_bytes_sent();
  for (size_t t = 0; t < secondary.size() && t < now.size(); ++t) now[t] += secondary[t];
  std::vector<int64_t> since(now.size());
  for (size_t t = 0; t < now.size(); ++t) since[t] = now[t] - sent_before_[t];
  sent_before_ = std::move(now);
  return since;
}

}  // namespace zpp
