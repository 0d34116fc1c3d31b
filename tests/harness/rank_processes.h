// Ranks as forked processes that a test may kill, stop and collect one by one.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/deadline.h"
#include "tests/harness/ranks.h"

namespace zpp::test {

class RankProcesses {
 public:
  // Forks; every child runs `body` and hands its result back through a pipe. A child dies with its
  // parent.
  RankProcesses(int world, const RankBody& body);
  ~RankProcesses();  // kills and reaps whatever is left, removes its shared memory
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  pid_t pid(int rank) const { return ranks_[static_cast<size_t>(rank)].pid; }
  void Signal(int rank, int signal);
  // Lets a dead rank's zombie go now. Without it zombies stay until Collect has heard of all ranks.
  void Reap(int rank);
  // Hears all results, or until time is up; then kills and reaps everything that is left.
  std::vector<RankOutcome> Collect(Deadline deadline);
  // The same for those ranks only, which are left unreaped: how they ended is known when all is
  // reaped.
  bool Hear(const std::vector<int>& ranks, Deadline deadline);
  // When the result of `rank` came; the epoch when it has not.
  Deadline::Clock::time_point heard_at(int rank) const {
    return ranks_[static_cast<size_t>(rank)].heard_at;
  }

 private:
  struct Rank {
    pid_t pid = -1;
    int pipe = -1;
    std::string bytes;    // what has come through the pipe
    bool closed = false;  // the pipe has ended: returned or dead
    Deadline::Clock::time_point heard_at{};
    bool reaped = false;
    int wait_status = 0;
    bool killed_late = false;
  };
  void Read(Rank& rank);
  void Wait(Rank& rank);
  RankOutcome Outcome(const Rank& rank) const;
  void KillAndReapAll();

  std::vector<Rank> ranks_;
  std::vector<std::string> segments_;  // shared memory files seen mapped by the ranks
};

}  // namespace zpp::test
