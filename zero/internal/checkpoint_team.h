// What ranks must tell each other so that all end alike: texts, and who failed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "common/deadline.h"
#include "common/status.h"

namespace zpp::internal {

// Each call is collective and waits up to `patience_s` for the slowest rank.
class Team {
 public:
  Team(Communicator& comm, double patience_s) : comm_(comm), patience_s_(patience_s) {}

  int rank() const { return comm_.rank(); }
  int world() const { return comm_.world(); }
  bool leads() const { return rank() == 0; }

  // Every rank's JSON, in rank order, or the failure of the first rank that brings one, the same on
  // all ranks: "rank 3: ...", with its code.
  Result<std::vector<nlohmann::json>> Gather(const Status& own, const nlohmann::json& value);
  // The same without values.
  Status Agree(const Status& own);

 private:
  Result<std::vector<std::string>> GatherTexts(const std::string& own);

  Communicator& comm_;
  double patience_s_;
};

}  // namespace zpp::internal
