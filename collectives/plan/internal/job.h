// A request made plain, with what it must own.
#pragma once

#include <optional>
#include <string>

#include "collectives/plan/internal/builder.h"

namespace zpp::internal {

// Holds the flattened topology that a flat job walks. The request's topology must outlive it.
struct PreparedJob {
  explicit PreparedJob(const PlanRequest& request);  // a request that has been checked
  PreparedJob(const PreparedJob&) = delete;
  PreparedJob& operator=(const PreparedJob&) = delete;

  PlanRequest request;
  Topology flattened;
  std::optional<Job> job;
};

// One sentence for people: which algorithm, which encodings, and why.
std::string ReasonOf(const Job& job);

}  // namespace zpp::internal
