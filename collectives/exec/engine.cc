#include "collectives/exec/engine.h"

#include <algorithm>
#include <utility>

namespace zpp {
namespace {

constexpr int kStepsPerPoll = 16;
constexpr size_t kLanesRound_bytes = 64 * 1024;

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

Engine::Engine(Transport* transport, ControlPlane* control, const Options& options)
    : transport_(transport),
      control_(control),
      options_(options),
      pool_(options.codec_threads),
      driver_({transport, &pool_, &traffic_, options.check_wire}) {
  traffic_.bytes.assign(static_cast<size_t>(options.tiers), 0);
}

Engine::~Engine() {
  if (line_.empty()) return;
  EndAll({StatusCode::kAborted, "the communicator was destroyed before the work had ended"});
}

void Engine::Submit(const std::shared_ptr<Work::State>& work) {
  work->engine = this;
  work->sequence = next_sequence_++;
  line_.push_back(work);
}

Status Engine::BeginFront() {
  const Work::State& front = *line_.front();
  const auto needed_bytes = static_cast<size_t>(front.prepared->lanes_bytes());
  if (lanes_.size() < needed_bytes) {
    lanes_.Reset();
    const size_t bytes =
        (needed_bytes + kLanesRound_bytes - 1) / kLanesRound_bytes * kLanesRound_bytes;
    ZPP_ASSIGN_OR_RETURN(lanes_, transport_->Allocate(bytes));
  }
  driver_.Begin(*front.prepared, {front.user, lanes_.data(), front.sequence, front.noise},
                front.stats);
  running_ = true;
  patience_ = Deadline::In(options_.timeout_s);
  return {};
}

Status Engine::StepFront(const Deadline* wait, bool* blocked) {
  *blocked = false;
  if (failed_.load(std::memory_order_acquire)) return failure();
  if (!running_) ZPP_RETURN_IF_ERROR(BeginFront());
  const auto step = wait == nullptr ? driver_.TryStep() : driver_.WaitStep(*wait);
  ZPP_RETURN_IF_ERROR(step.status());
  switch (*step) {
    case HostDriver::Step::kProgressed:
      break;
    case HostDriver::Step::kBlocked:
      *blocked = true;
      break;
    case HostDriver::Step::kDone:
      EndFront({});
      break;
  }
  return {};
}

// A polled work that is stuck fails like one that is waited for. The transport is asked once more,
// with no time left, because it knows who owes what.
Status Engine::CheckPatience(const Work::State& front) {
  const Deadline limit = front.deadline.value_or(patience_);
  if (!limit.expired()) return {};
  const Deadline now = Deadline::In(0);
  return driver_.WaitStep(now).status();
}

// Patience counts while somebody polls: after a long absence of the caller's own, what has arrived
// meanwhile must be looked at before anybody is called late.
void Engine::RenewPatience() {
  const auto now = Deadline::Clock::now();
  const std::chrono::duration<double> away = now - last_poll_;
  if (away.count() > options_.timeout_s / 2) patience_ = Deadline::In(options_.timeout_s);
  last_poll_ = now;
}

bool Engine::Poll(Work::State& work) {
  RenewPatience();
  for (int i = 0; i < kStepsPerPoll && !work.ended; ++i) {
    bool blocked = false;
    Status status = StepFront(nullptr, &blocked);
    if (status.ok() && blocked) {
      status = CheckPatience(*line_.front());
      if (status.ok()) break;
    }
    if (!status.ok()) Fail(status);
    if (!status.ok()) EndAll(failure());
    patience_ = Deadline::In(options_.timeout_s);
  }
  return work.ended;
}

Status Engine::Wait(Work::State& work, Deadline deadline) {
  while (!work.ended) {
    const auto& own = line_.front()->deadline;
    const Deadline limit = own ? Earlier(deadline, *own) : deadline;
    bool blocked = false;
    const Status status = StepFront(&limit, &blocked);
    if (status.ok()) continue;
    Fail(status);
    EndAll(failure());
  }
  return work.status;
}

Status Engine::Drain(Deadline deadline) {
  while (!line_.empty()) {
    const std::shared_ptr<Work::State> front = line_.front();
    ZPP_RETURN_IF_ERROR(Wait(*front, deadline));
  }
  return failure();
}

void Engine::EndFront(const Status& status) {
  const std::shared_ptr<Work::State> front = std::move(line_.front());
  line_.pop_front();
  running_ = false;
  front->End(status);
}

// The transport hears of it first (perhaps again: its first reason stays), and Progress() lets it
// drop what it knows of memory that is the callers' again, or goes with the lanes.
void Engine::EndAll(const Status& status) {
  if (running_) transport_->Abort(status);
  if (running_) transport_->Progress();
  while (!line_.empty()) EndFront(status);
}

bool Engine::Keep(const Status& why) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return false;
  failure_ = why;
  failed_.store(true, std::memory_order_release);
  return true;
}

void Engine::Close(const Status& why) { Keep(why); }

void Engine::Fail(const Status& why) {
  if (!Keep(why)) return;
  transport_->Abort(why);
  if (control_ != nullptr && OthersMustHear(why.code())) control_->Abort(why.message());
}

Status Engine::failure() const {
  if (!failed_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace zpp
