#include "collectives/bootstrap/internal/mailbox.h"

#include "collectives/bootstrap/internal/bytes.h"

namespace zpp::internal {
namespace {

// The hub answers when our patience ends; it may be late by this much.
constexpr double kGrace_s = 1.0;

// Until `done` or the deadline; steady clock, no overflow for Never().
template <typename Done>
bool WaitFor(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
             Deadline deadline, const Done& done) {
  if (deadline.never()) {
    changed.wait(lock, done);
    return true;
  }
  return changed.wait_until(lock, deadline.when(), done);
}

Result<std::vector<std::string>> UnpackGathered(const Frame& frame, int world) {
  ByteReader in(frame.body);
  in.Get<uint32_t>();
  if (frame.type == FrameType::kGatherFailed) return UnpackStatus(in.GetString());
  const auto count = in.Get<uint32_t>();
  if (count != static_cast<uint32_t>(world)) return DataLoss("rank 0 gathered another world");
  std::vector<std::string> blobs;
  for (uint32_t i = 0; i < count && in.ok(); ++i) blobs.push_back(in.GetString());
  if (!in.done()) return DataLoss("rank 0 sent a gathering that cannot be read");
  return blobs;
}

}  // namespace

void Mailbox::Post(Frame frame) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(frame));
  }
  wake_bell_.Ring();
}

Result<std::vector<std::string>> Mailbox::AwaitGathered(uint32_t sequence, int world,
                                                        Deadline deadline) {
  const Deadline last =
      deadline.never() ? deadline : Deadline::In(deadline.remaining_s() + kGrace_s);
  std::unique_lock lock(mutex_);
  WaitFor(changed_, lock, last, [&] { return verdict_ || gathered_.count(sequence) > 0; });
  const auto answer = gathered_.extract(sequence);
  if (!answer.empty()) return UnpackGathered(answer.mapped(), world);
  if (verdict_) return *verdict_;
  return Status(StatusCode::kDeadlineExceeded, "rank 0 did not answer");
}

std::optional<Status> Mailbox::verdict() const {
  if (!has_verdict_.load(std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return verdict_;
}

std::optional<Status> Mailbox::AwaitVerdict(Deadline deadline) {
  std::unique_lock lock(mutex_);
  WaitFor(changed_, lock, deadline, [&] { return verdict_.has_value(); });
  return verdict_;
}

void Mailbox::RequestStop() {
  stop_.store(true, std::memory_order_release);
  wake_bell_.Ring();
}

std::vector<Frame> Mailbox::TakePosted() {
  wake_bell_.Clear();
  const std::lock_guard lock(mutex_);
  return std::exchange(posted_, {});
}

void Mailbox::Deliver(const Frame& frame) {
  if (frame.type == FrameType::kVerdict) SetVerdict(UnpackStatus(frame.body));
  if (frame.type != FrameType::kGathered && frame.type != FrameType::kGatherFailed) return;
  const std::lock_guard lock(mutex_);
  gathered_[ByteReader(frame.body).Get<uint32_t>()] = frame;
  changed_.notify_all();
}

void Mailbox::SetVerdict(const Status& verdict) {
  const std::lock_guard lock(mutex_);
  if (verdict_) return;
  verdict_ = verdict;
  has_verdict_.store(true, std::memory_order_release);
  verdict_bell_.Ring();
  changed_.notify_all();
}

std::string GatherBody::Pack() const {
  return ByteWriter().Put(sequence).Put(patience_ms).PutString(blob).Take();
}

bool GatherBody::Unpack(const std::string& body, GatherBody* out) {
  ByteReader in(body);
  out->sequence = in.Get<uint32_t>();
  out->patience_ms = in.Get<uint32_t>();
  out->blob = in.GetString();
  return in.done();
}

std::string PackGathered(uint32_t sequence, const std::vector<std::string>& blobs) {
  ByteWriter out;
  out.Put(sequence).Put(static_cast<uint32_t>(blobs.size()));
  for (const std::string& blob : blobs) out.PutString(blob);
  return out.Take();
}

std::string PackGatherFailed(uint32_t sequence, const Status& why) {
  return ByteWriter().Put(sequence).PutString(PackStatus(why)).Take();
}

std::string ReportBody::Pack() const { return ByteWriter().Put(suspect).PutString(why).Take(); }

bool ReportBody::Unpack(const std::string& body, ReportBody* out) {
  ByteReader in(body);
  out->suspect = in.Get<int32_t>();
  out->why = in.GetString();
  return in.done();
}

}  // namespace zpp::internal
