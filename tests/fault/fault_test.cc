// A few of each fault; fault_runner plays hundreds.
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/fault/fault_run.h"

namespace zpp::test {
namespace {

struct Play {
  FaultAction action;
  const char* transport;
  const char* name;
  bool polling = false;
};

class Fault : public testing::TestWithParam<Play> {};

TEST_P(Fault, EverySurvivorNamesTheLostRankAndStartsAnew) {
  if (GetParam().action == FaultAction::kCut && geteuid() != 0) GTEST_SKIP() << "probe: not root";
  const FaultSetup setup{.action = GetParam().action,
                         .transport = GetParam().transport,
                         .polling = GetParam().polling};
  // Each rank is the victim once; the fifth time the hub again, now reaped at once.
  for (int run = 0; run < 5; ++run) {
    const Result<FaultReport> report = RunFault(setup, run);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    for (const std::string& miss : report->misses)
      ADD_FAILURE() << "victim " << report->victim << ", " << miss;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Fault,
                         testing::Values(Play{FaultAction::kKill, "shm", "KillSharedMemory"},
                                         Play{FaultAction::kKill, "tcp", "KillTcp"},
                                         Play{FaultAction::kKill, "mixed", "KillMixed"},
                                         Play{FaultAction::kKill, "shm", "KillPolling", true},
                                         Play{FaultAction::kStop, "shm", "StopSharedMemory"},
                                         Play{FaultAction::kStop, "tcp", "StopTcp"},
                                         Play{FaultAction::kCut, "tcp", "CutLink"}),
                         [](const auto& play) { return std::string(play.param.name); });

}  // namespace
}  // namespace zpp::test
