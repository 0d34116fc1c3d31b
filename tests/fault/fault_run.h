// One fault, played for real: ranks run all-reduces, one of them is killed, stopped or cut off in
// the middle, and each survivor is asked what it noticed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace zpp::test {

enum class FaultAction : uint8_t { kKill, kStop, kCut };

struct FaultSetup {
  FaultAction action = FaultAction::kKill;
  std::string transport =
      "shm";  // "shm", "tcp" or "mixed" (two nodes); a cut always has a node per rank
  int ranks = 4;
  double deadline_s = 2;    // of every collective
  int64_t elems = 4 << 20;  // fp32, of the all-reduce
  bool polling = false;     // Work::Poll between naps instead of blocking calls
  uint64_t seed = 1;
};

struct FaultReport {
  int victim = -1;
  bool in_collective = false;       // where the victim was when it was hit
  bool zombie = false;              // killed and left unreaped while the survivors found out
  double first_s = 0;               // from the fault to the first survivor's error
  double last_s = 0;                // and to the last one's
  std::vector<std::string> misses;  // what was not as it must be; empty: all was
};

// `run` chooses the victim in turn, rank 0 (the hub of the control plane) among them. What must
// hold: each survivor's all-reduce ends within twice the deadline in an error whose lost_rank() is
// the victim; it destroys its communicator; the survivors connect again, all-reduce right values
// and shut down; nobody crashes or hangs. A stopped victim that goes on later, and one that was cut
// off, must get an error as well. An error Status when the play itself could not be set up.
Result<FaultReport> RunFault(const FaultSetup& setup, int run);

}  // namespace zpp::test
