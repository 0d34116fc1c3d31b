// What error feedback owes, and the comparison of received with true gradients.
#include <cstring>
#include <utility>

#include "zero/internal/gradient_reducer.h"
#include "zero/internal/plain_math.h"

namespace zpp::internal {
namespace {

constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

}  // namespace

// What error feedback owes arrives by reductions of its own, one per hop: each element has one
// contribution per domain and zeros beside it, so the sum's bits do not depend on which rank of the
// domain kept the residual, as they would if it joined that rank's gradient.
Status GradientReducer::StartFlush(int bucket) {
  Part& part = parts_[Index(bucket)];
  if (!part.owes) return {};
  part.owes = false;
  // Ranks that keep nothing take part all the same.
  for (const int tier : FeedbackTiers()) {
    Flush flush;
    ZPP_ASSIGN_OR_RETURN(flush.owed, pool_.Take(context_->bucket(bucket).elems * kFloatBytes));
    ZPP_ASSIGN_OR_RETURN(flush.arrived, pool_.Take(context_->Own(bucket).elems * kFloatBytes));
    std::memset(flush.owed.data(), 0, flush.owed.size());
    for (ReduceFeedback::Piece& piece : part.feedback.pieces()) {
      if (piece.tier != tier) continue;
      if (piece.averaged) {
        ZPP_RETURN_IF_ERROR(piece.residual.Scale(static_cast<float>(context_->map.world)));
      }
      ZPP_RETURN_IF_ERROR(piece.residual.Flush(
          FloatsOf(flush.owed)
              .subspan(static_cast<size_t>(piece.first_elem), static_cast<size_t>(piece.elems))));
    }
    flush.work =
        context_->comm->StartReduceScatter(VecOf(std::span<const float>(FloatsOf(flush.owed))),
                                           VecOf(FloatsOf(flush.arrived)), Call(bucket));
    part.flushes.push_back(std::move(flush));
  }
  return {};
}

// The true gradient, and at an exact step what compression would have given: blocks. Leaves sum
// and residuals as they were.
Status GradientReducer::CompareWithTruth(int bucket) {
  Part& part = parts_[Index(bucket)];
  if (!part.compressible) return {};
  ZPP_RETURN_IF_ERROR(ReduceTruth(bucket));
  if (!mode_.exact || part.bits == 16) return {};
  return ReduceShadow(bucket);
}

Status GradientReducer::ReduceShadow(int bucket) {
  Part& part = parts_[Index(bucket)];
  std::vector<ErrorFeedback> kept;
  for (const ReduceFeedback::Piece& piece : part.feedback.pieces()) {
    ZPP_ASSIGN_OR_RETURN(ErrorFeedback copy, piece.residual.Clone());
    kept.push_back(std::move(copy));
  }
  ZPP_ASSIGN_OR_RETURN(Buffer now, pool_.Take(context_->Own(bucket).elems * kFloatBytes));
  const bool owes = part.owes;
  ZPP_RETURN_IF_ERROR(StartCompressed(bucket, FloatsOf(now)));
  ZPP_RETURN_IF_ERROR(part.work->Wait(context_->Patience()));
  part.owes = owes;
  size_t i = 0;
  for (ReduceFeedback::Piece& piece : part.feedback.pieces()) {
    piece.residual = std::move(kept[i++]);
  }
  return AddMicroBatch(std::move(now), part.shadow);
}

// Every micro-batch is reduced on its own when gradients are not accumulated first.
Status GradientReducer::AddMicroBatch(Buffer now, Buffer& sum) {
  if (sum.empty()) {
    sum = std::move(now);
    return {};
  }
  ZPP_RETURN_IF_ERROR(AddTo(VecOf(FloatsOf(sum)), VecOf(std::span<const float>(FloatsOf(now)))));
  pool_.Give(std::move(now));
  return {};
}

Status GradientReducer::ReduceTruth(int bucket) {
  Part& part = parts_[Index(bucket)];
  ZPP_ASSIGN_OR_RETURN(Buffer now, pool_.Take(context_->Own(bucket).elems * kFloatBytes));
  ZPP_RETURN_IF_ERROR(context_->comm->ReduceScatter(
      VecOf(std::span<const float>(FloatsOf(part.sum))), VecOf(FloatsOf(now)), Call(bucket)));
  return AddMicroBatch(std::move(now), part.truth);
}

Status GradientReducer::ScaleResiduals(float factor) {
  for (Part& part : parts_) ZPP_RETURN_IF_ERROR(part.feedback.Scale(factor));
  return {};
}

void GradientReducer::DropResiduals() {
  for (Part& part : parts_) {
    part.feedback.Drop();
    part.owes = false;
  }
}

std::vector<int> GradientReducer::FeedbackTiers() const {
  std::vector<int> tiers = HopTiers(context_->comm->topology(), false);
  const bool last_only = context_->config.zero_pp.error_feedback == ErrorFeedbackMode::kSecondHop;
  if (last_only && tiers.size() > 1) tiers.erase(tiers.begin(), tiers.end() - 1);
  return tiers;
}

void GradientReducer::set_owes(bool owes) {
  for (Part& part : parts_) part.owes = owes && part.feedback.elems() > 0;
}

}  // namespace zpp::internal
