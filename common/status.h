// One error type for the whole library: nothing throws across the API.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace zpp {

// Ordered by what the caller does next; RemedyFor() tells it.
enum class StatusCode : uint8_t {
  kOk = 0,
  // Fix the argument.
  kInvalidArgument,  // a value that can never work
  kNotFound,         // a file, a variable or a rank that does not exist
  kDataLoss,         // bytes that are truncated, corrupt or lie about themselves
  kUnimplemented,    // reserved, not built yet
  // Try again.
  kUnavailable,  // not yet: a peer that is not up, an address in use
  // Rebuild the communicator.
  kDeadlineExceeded,  // no rank is known to be lost, but the time is up
  kPeerLost,          // lost_rank() is gone, stopped or cut off
  kAborted,           // this communicator failed before, or Abort() was called
  kMismatch,          // ranks disagree about version, topology, configuration or call
  // Give up.
  kResourceExhausted,  // memory, disk, descriptors
  kInternal,           // a bug in zpp or a library that broke its promise
};

enum class Remedy : uint8_t { kNone, kFixArgument, kRetry, kRebuild, kGiveUp };

Remedy RemedyFor(StatusCode code);
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status PeerLost(int rank, std::string message) {
    Status status(StatusCode::kPeerLost, std::move(message));
    status.lost_rank_ = rank;
    return status;
  }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // The rank that is lost, -1 when the code is not kPeerLost.
  int lost_rank() const { return lost_rank_; }
  // "PEER_LOST: rank 3 closed its control socket"; "OK" when ok.
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  int lost_rank_ = -1;
  std::string message_;
};

// A value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (status_.ok()) status_ = Status(StatusCode::kInternal, "Result built from an ok Status");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // Only when ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

// Shorthand for the codes that are made most often.
inline Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
inline Status DataLoss(std::string message) { return {StatusCode::kDataLoss, std::move(message)}; }
inline Status Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

}  // namespace zpp

#define ZPP_STATUS_CONCAT_INNER(a, b) a##b
#define ZPP_STATUS_CONCAT(a, b) ZPP_STATUS_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expr` (a Status) is not ok.
#define ZPP_RETURN_IF_ERROR(expr)              \
  do {                                         \
    ::zpp::Status zpp_status_ = (expr);        \
    if (!zpp_status_.ok()) return zpp_status_; \
  } while (false)

// ZPP_ASSIGN_OR_RETURN(auto x, MakeX()): x = the value, or return the Status.
#define ZPP_ASSIGN_OR_RETURN(lhs, expr) \
  ZPP_ASSIGN_OR_RETURN_INNER(ZPP_STATUS_CONCAT(zpp_result_, __LINE__), lhs, expr)
#define ZPP_ASSIGN_OR_RETURN_INNER(result, lhs, expr) \
  auto result = (expr);                               \
  if (!result.ok()) return result.status();           \
  lhs = std::move(result).value()
