#include "common/status.h"

namespace zpp {

Remedy RemedyFor(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return Remedy::kNone;
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kDataLoss:
    case StatusCode::kUnimplemented:
      return Remedy::kFixArgument;
    case StatusCode::kUnavailable:
      return Remedy::kRetry;
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kPeerLost:
    case StatusCode::kAborted:
    case StatusCode::kMismatch:
      return Remedy::kRebuild;
    case StatusCode::kResourceExhausted:
    case StatusCode::kInternal:
      return Remedy::kGiveUp;
  }
  return Remedy::kGiveUp;
}

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kPeerLost:
      return "PEER_LOST";
    case StatusCode::kAborted:
      return "ABORTED";
    case StatusCode::kMismatch:
      return "MISMATCH";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kInternal:
      return "INTERNAL";
  }
  return "UNKNOWN";
}

std::string Status::ToString() const {
  std::string text(StatusCodeName(code_));
  if (!message_.empty()) text += ": " + message_;
  return text;
}

}  // namespace zpp
