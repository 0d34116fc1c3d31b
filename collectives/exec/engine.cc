#include "collectives/exec/engine.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace zpp {
namespace {

constexpr int kStepsPerPoll = 16;
constexpr size_t kLanesRound_bytes = 64 * 1024;

// Looks at what others of the family wait for, before a nap.
constexpr int kYields = 100;
constexpr auto kNap = std::chrono::microseconds(50);

}  // namespace

Engine::Engine(Transport* transport, Family* family, Options options)
    : transport_(transport),
      family_(family),
      options_(std::move(options)),
      driver_({transport, &family->pool(), &traffic_, options_.check_wire}) {
  traffic_.bytes.assign(static_cast<size_t>(options_.tiers), 0);
  family_->Join(this);
}

Engine::~Engine() {
  if (!line_.empty()) {
    const Status why(StatusCode::kAborted,
                     "the communicator was destroyed before the work had ended");
    if (family_->shared()) Fail(why);  // the transport lives on, the peers' works cannot
    EndAll(why);
  }
  family_->Part(this);
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
  driver_.Begin(*front.prepared,
                {.user = front.user,
                 .lanes = lanes_.data(),
                 .sequence = front.sequence,
                 .group = options_.group,
                 .root_ranks = options_.root_ranks,
                 .noise = front.noise,
                 .feedback = front.feedback},
                {.all = front.stats, .last_hop = front.last_hop_stats});
  running_ = true;
  patience_ = Deadline::In(options_.timeout_s);
  return {};
}

Status Engine::StepFront(const Deadline* wait, bool* blocked) {
  *blocked = false;
  ZPP_RETURN_IF_ERROR(failure());
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
      family_->MoveOthers(this);
      status = CheckPatience(*line_.front());
      if (status.ok()) break;
    }
    if (!status.ok()) Fail(status);
    if (!status.ok()) EndAll(failure());
    patience_ = Deadline::In(options_.timeout_s);
  }
  return work.ended;
}

bool Engine::Move() {
  bool moved = false;
  for (int i = 0; i < kStepsPerPoll && !line_.empty(); ++i) {
    bool blocked = false;
    const Status status = StepFront(nullptr, &blocked);
    if (status.ok() && blocked) break;
    moved = true;
    patience_ = Deadline::In(options_.timeout_s);
    if (status.ok()) continue;
    Fail(status);
    EndAll(failure());
  }
  return moved;
}

// Peers may be in another order: their part of this work may come only after others' works of the
// family, which wait for this rank.
Status Engine::StepOrMoveOthers(const Deadline& limit, int* idle) {
  bool blocked = false;
  if (!family_->OthersBusy(this)) return StepFront(&limit, &blocked);
  ZPP_RETURN_IF_ERROR(StepFront(nullptr, &blocked));
  if (!blocked || family_->MoveOthers(this)) {
    *idle = 0;
    return {};
  }
  if (limit.expired()) return StepFront(&limit, &blocked);
  if (++*idle <= kYields) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(kNap);
  }
  return {};
}

Status Engine::Wait(Work::State& work, Deadline deadline) {
  int idle = 0;
  while (!work.ended) {
    const auto& own = line_.front()->deadline;
    const Deadline limit = own ? Earlier(deadline, *own) : deadline;
    const Status status = StepOrMoveOthers(limit, &idle);
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

void Engine::Close(const Status& why) {
  std::lock_guard lock(mutex_);
  if (!why_closed_.ok()) return;
  why_closed_ = why;
  closed_.store(true, std::memory_order_release);
}

Status Engine::failure() const {
  ZPP_RETURN_IF_ERROR(family_->failure());
  if (!closed_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(mutex_);
  return why_closed_;
}

}  // namespace zpp
