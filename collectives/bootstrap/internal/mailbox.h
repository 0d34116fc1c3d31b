// Between the threads that use a control plane and the one that runs it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/bootstrap/internal/connection.h"
#include "collectives/bootstrap/internal/fd.h"
#include "common/deadline.h"
#include "common/status.h"

namespace zpp::internal {

// Thread-safe.
class Mailbox {
 public:
  // Users' side.
  void Post(Frame frame);
  Result<std::vector<std::string>> AwaitGathered(uint32_t sequence, int world, Deadline deadline);
  std::optional<Status> verdict() const;
  std::optional<Status> AwaitVerdict(Deadline deadline);
  int verdict_fd() const { return verdict_bell_.fd(); }
  void RequestStop();

  // Loop's side.
  std::vector<Frame> TakePosted();
  int wake_fd() const { return wake_bell_.fd(); }
  bool stop_requested() const { return stop_.load(std::memory_order_acquire); }
  // kVerdict, kGathered and kGatherFailed; others are ignored.
  void Deliver(const Frame& frame);
  // The first one stays.
  void SetVerdict(const Status& verdict);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Frame> posted_;
  std::map<uint32_t, Frame> gathered_;  // answers, by exchange
  std::optional<Status> verdict_;
  std::atomic<bool> has_verdict_{false};
  std::atomic<bool> stop_{false};
  Bell wake_bell_, verdict_bell_;
};

// Bodies of kGather: sequence, patience, blob; of kGathered: sequence, count, blobs; of
// kGatherFailed: sequence, Status.
struct GatherBody {
  uint32_t sequence = 0;
  uint32_t patience_ms = 0;
  std::string blob;
  std::string Pack() const;
  static bool Unpack(const std::string& body, GatherBody* out);
};
std::string PackGathered(uint32_t sequence, const std::vector<std::string>& blobs);
std::string PackGatherFailed(uint32_t sequence, const Status& why);

// Body of kReport.
struct ReportBody {
  int32_t suspect = -1;
  std::string why;
  std::string Pack() const;
  static bool Unpack(const std::string& body, ReportBody* out);
};

}  // namespace zpp::internal
