// A collective that has been started.
#pragma once

#include <memory>

#include "common/deadline.h"
#include "common/status.h"

namespace zpp {

// A handle; copies refer to the same work. Outlives its communicator safely: then it has failed
// with kAborted.
class Work {
 public:
  class State;  // collectives/exec
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // An ended work with this status.
  static Work Ended(Status status);

  // Moves bytes without waiting; true when it has ended, well or badly.
  bool Poll();
  // Until it has ended. When `deadline` passes first, the communicator fails: a collective cannot
  // be left half-way.
  Status Wait(Deadline deadline);
  // kUnavailable while it runs.
  Status status() const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace zpp
