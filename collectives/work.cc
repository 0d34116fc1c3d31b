#include "collectives/work.h"

#include "collectives/exec/engine.h"
#include "collectives/exec/work_state.h"

namespace zpp {

Work Work::Ended(Status status) {
  auto state = std::make_shared<State>();
  state->End(std::move(status));
  return Work(std::move(state));
}

bool Work::Poll() { return state_->ended || state_->engine->Poll(*state_); }

Status Work::Wait(Deadline deadline) {
  return state_->ended ? state_->status : state_->engine->Wait(*state_, deadline);
}

Status Work::status() const {
  if (state_->ended) return state_->status;
  return Status(StatusCode::kUnavailable, "the work has not ended yet");
}

}  // namespace zpp
