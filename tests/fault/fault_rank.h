// What a rank of a fault run does.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "common/status.h"
#include "tests/fault/fault_run.h"

namespace zpp::test {

// Memory that the parent and all ranks share.
struct FaultStage {
  static constexpr int kMaxRanks = 64;
  std::array<std::atomic<int>, kMaxRanks> in_namespace{};
  std::array<std::atomic<int64_t>, kMaxRanks> rounds{};  // all-reduces that ended well
  std::array<std::atomic<bool>, kMaxRanks> in_collective{};
  std::atomic<bool> network_up{false};
  std::atomic<int> victim{-1};

  static FaultStage* Make();  // in the parent, before it forks
};

// Nanoseconds of the clock that all processes of a host share.
int64_t Now_ns();

// Connects, all-reduces until something fails, lets go, and (a survivor) starts anew with the
// others. Returns JSON: error_ns, code, lost_rank, message: of the failure; rebuilt: "" when the
// new communicator worked, else why not.
Result<std::string> PlayRank(const FaultSetup& setup, uint16_t port, int rank, FaultStage& stage);

}  // namespace zpp::test
