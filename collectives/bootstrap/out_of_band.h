// How ranks exchange a few bytes before there is a transport.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/status.h"

namespace zpp {

// Every rank gives a blob and gets all of them, in rank order. Calls come in the same order on all
// ranks.
class OutOfBand {
 public:
  virtual ~OutOfBand() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  // When time is up: kDeadlineExceeded that names the ranks that never came.
  virtual Result<std::vector<std::string>> AllGather(const std::string& mine,
                                                     Deadline deadline) = 0;
};

// An out-of-band channel that stays open and watches the ranks. Thread-safe.
class ControlPlane : public OutOfBand {
 public:
  // The one verdict that every survivor gets, once there is one: kPeerLost, or kAborted by a rank's
  // Abort.
  virtual std::optional<Status> Verdict() = 0;
  // Readable as soon as there is a verdict: to be polled beside a transport's own descriptor. -1
  // when there is none.
  virtual int verdict_fd() const = 0;
  // Ends the job of all ranks on purpose: every rank's verdict becomes kAborted, "rank r aborted:
  // why".
  virtual void Abort(const std::string& why) = 0;
  // "I am stuck": rank `suspect` (-1: don't know) owes me data. The hub decides, and rules out the
  // living.
  virtual void Report(int suspect, const std::string& why) = 0;
  // Waits for the verdict after a Report. nullopt when there is none by then.
  virtual std::optional<Status> AwaitVerdict(Deadline deadline) = 0;
  // Tells all ranks that this one leaves on purpose, so that its closing is not a loss. Idempotent.
  virtual void Leave() = 0;
};

}  // namespace zpp
