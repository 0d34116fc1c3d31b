#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "collectives/bootstrap/internal/rank_names.h"
#include "collectives/transport/internal/in_process_hub.h"

namespace zpp::in_process {

using internal::NameRanks;

Hub::Hub(int world, bool has_control, bool has_transport)
    : world_(world),
      has_control_(has_control),
      has_transport_(has_transport),
      abandoned_(static_cast<size_t>(world)),
      left_(static_cast<size_t>(world)),
      came_to_shutdown_(static_cast<size_t>(world)),
      shut_down_(static_cast<size_t>(world)),
      next_round_(static_cast<size_t>(world)) {
  for (int rank = 0; rank < world; ++rank) ports_.push_back(std::make_unique<Port>());
  if (has_control) verdict_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

Hub::~Hub() {
  if (verdict_fd_ >= 0) close(verdict_fd_);
}

void Hub::Post(int to, std::shared_ptr<Message> message) {
  Port& target = port(to);
  const std::lock_guard lock(target.mutex);
  target.inbox.push_back(std::move(message));
  ++target.events;
  target.news.notify_one();
}

void Hub::Notify(int rank) {
  Port& target = port(rank);
  const std::lock_guard lock(target.mutex);
  ++target.events;
  target.news.notify_one();
}

void Hub::End(int rank, const Status& why) {
  Port& target = port(rank);
  const std::lock_guard lock(target.mutex);
  if (!target.ended) target.ended = why;
  ++target.events;
  target.news.notify_one();
}

void Hub::Abandon(int rank) {
  {
    const std::lock_guard lock(mutex_);
    abandoned_[static_cast<size_t>(rank)].store(true, std::memory_order_release);
    abandoned_count_.fetch_add(1, std::memory_order_release);
    news_.notify_all();
  }
  for (int other = 0; other < world_; ++other) {
    if (other != rank) Notify(other);
  }
}

// The lost rank if one of the missing is known to be lost, otherwise only that time is up.
Status Hub::WhyIncomplete(const std::vector<int>& missing, const std::string& what) {
  for (int rank : missing) {
    if (left_[static_cast<size_t>(rank)] || abandoned(rank)) {
      return Status::PeerLost(rank, what + ": rank " + std::to_string(rank) + " has left");
    }
  }
  return {StatusCode::kDeadlineExceeded,
          what + ": time is up, " + NameRanks(missing) + " did not come"};
}

Status Hub::MeetForShutdown(int rank, Deadline deadline) {
  std::unique_lock lock(mutex_);
  came_to_shutdown_[static_cast<size_t>(rank)] = true;
  shut_down_[static_cast<size_t>(rank)] = true;
  news_.notify_all();
  const auto missing = [&] {
    std::vector<int> ranks;
    for (int r = 0; r < world_; ++r) {
      if (!shut_down_[static_cast<size_t>(r)]) ranks.push_back(r);
    }
    return ranks;
  };
  const auto hopeless = [&] {
    return verdict_.has_value() ||
           std::ranges::any_of(missing(), [&](int r) { return abandoned(r); });
  };
  WaitUntil(news_, lock, deadline, [&] { return missing().empty() || hopeless(); });
  if (missing().empty()) return {};
  shut_down_[static_cast<size_t>(rank)] = false;
  if (verdict_) return *verdict_;
  std::vector<int> others = missing();
  std::erase(others, rank);
  // Those who came and gave up are not to blame while others never came.
  std::vector<int> never = others;
  std::erase_if(never, [&](int r) { return came_to_shutdown_[static_cast<size_t>(r)]; });
  return WhyIncomplete(never.empty() ? others : never, "shutdown");
}

void Hub::TransportFailed(int rank, const Status& why) {
  if (!has_control_) return;
  if (why.code() == StatusCode::kPeerLost) {
    Decide(why);
  } else {
    Report(rank, -1, why.message());
  }
}

Result<std::vector<std::string>> Hub::Gather(int rank, const std::string& mine, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const uint64_t number = next_round_[static_cast<size_t>(rank)]++;
  Round& round = rounds_[number];
  round.blobs.resize(static_cast<size_t>(world_));
  round.blobs[static_cast<size_t>(rank)] = mine;
  ++round.arrived;
  news_.notify_all();
  const auto missing = [&] {
    std::vector<int> ranks;
    for (int r = 0; r < world_; ++r) {
      if (!round.blobs[static_cast<size_t>(r)]) ranks.push_back(r);
    }
    return ranks;
  };
  const auto hopeless = [&] {
    return verdict_.has_value() ||
           std::ranges::any_of(missing(), [&](int r) { return left_[static_cast<size_t>(r)]; });
  };
  WaitUntil(news_, lock, deadline, [&] { return round.arrived == world_ || hopeless(); });
  if (round.arrived < world_) {
    return verdict_ ? *verdict_ : WhyIncomplete(missing(), "gathering among ranks");
  }
  std::vector<std::string> all;
  for (const auto& blob : round.blobs) all.push_back(*blob);
  if (++round.read == world_) rounds_.erase(number);
  return all;
}

std::optional<Status> Hub::Verdict() {
  const std::lock_guard lock(mutex_);
  return verdict_;
}

std::optional<Status> Hub::AwaitVerdict(Deadline deadline) {
  std::unique_lock lock(mutex_);
  WaitUntil(news_, lock, deadline, [&] { return verdict_.has_value(); });
  return verdict_;
}

void Hub::Decide(Status verdict) {
  {
    const std::lock_guard lock(mutex_);
    if (verdict_) return;
    verdict_ = verdict;
    news_.notify_all();
    if (verdict_fd_ >= 0) eventfd_write(verdict_fd_, 1);
  }
  if (!has_transport_) return;
  for (int rank = 0; rank < world_; ++rank) End(rank, verdict);
}

void Hub::AbortAll(int from, const std::string& why) {
  Decide({StatusCode::kAborted, "rank " + std::to_string(from) + " aborted: " + why});
}

void Hub::Report(int from, int suspect, const std::string& why) {
  bool gone = false;
  if (suspect >= 0 && suspect < world_) {
    const std::lock_guard lock(mutex_);
    gone = left_[static_cast<size_t>(suspect)] || abandoned(suspect);
  }
  if (gone) {
    Decide(Status::PeerLost(suspect, "rank " + std::to_string(suspect) + " has left: " + why));
  } else {
    Decide({StatusCode::kAborted, "rank " + std::to_string(from) + " gave up: " + why});
  }
}

void Hub::Leave(int rank) {
  const std::lock_guard lock(mutex_);
  left_[static_cast<size_t>(rank)] = true;
  news_.notify_all();
}

void Hub::CloseControl(int rank) {
  {
    const std::lock_guard lock(mutex_);
    if (left_[static_cast<size_t>(rank)]) return;
    left_[static_cast<size_t>(rank)] = true;
  }
  Decide(Status::PeerLost(rank, "rank " + std::to_string(rank) + " went away without leaving"));
}

}  // namespace zpp::in_process
