#include "collectives/exec/family.h"

#include <algorithm>

#include "collectives/exec/engine.h"

namespace zpp {
namespace {

// Failures that this rank alone knows of. The transport's own have reached the others already, or
// are about them: telling would only race with the verdict that names the lost rank.
bool OthersMustHear(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kPeerLost:
      return false;
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kDataLoss:
    case StatusCode::kUnimplemented:
    case StatusCode::kAborted:
    case StatusCode::kMismatch:
    case StatusCode::kResourceExhausted:
    case StatusCode::kInternal:
      return true;
  }
  return true;
}

}  // namespace

bool Family::Keep(const Status& why) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return false;
  failure_ = why;
  failed_.store(true, std::memory_order_release);
  return true;
}

void Family::Fail(const Status& why) {
  if (!Keep(why)) return;
  transport_->Abort(why);
  if (control_ && OthersMustHear(why.code())) control_->Abort(why.message());
}

Status Family::failure() const {
  if (!failed_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(mutex_);
  return failure_;
}

bool Family::OthersBusy(const Engine* self) const {
  return std::any_of(engines_.begin(), engines_.end(),
                     [&](const Engine* other) { return other != self && other->busy(); });
}

bool Family::MoveOthers(const Engine* self) {
  bool moved = false;
  for (Engine* other : engines_) {
    if (other != self && other->busy()) moved = other->Move() || moved;
  }
  return moved;
}

Status Family::DrainAll(Deadline deadline) {
  for (Engine* engine : engines_) ZPP_RETURN_IF_ERROR(engine->Drain(deadline));
  return failure();
}

}  // namespace zpp
