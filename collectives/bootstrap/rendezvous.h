// How the ranks of a job find each other: rank 0 listens, the others come, all know when everybody
// is there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/bootstrap/internal/connection.h"
#include "collectives/bootstrap/internal/fd.h"
#include "common/deadline.h"
#include "common/status.h"

namespace zpp {

struct RendezvousSpec {
  int rank = 0;
  int world = 1;
  uint64_t job = 0;  // ranks of another job are sent away
  std::string host;
  // Tried in this order: rank 0 takes the first that is free, the others ask at each whether their
  // job is there.
  std::vector<uint16_t> ports;
  // Rank 0 may bring a socket that listens already; `host` and `ports` are then not used.
  internal::Fd listener;
};

namespace internal {

// Largest frame that a rank may send to the hub.
inline constexpr size_t kMaxRankFrame_bytes = size_t{2} << 20;

// Rank 0: one connection per rank (that of rank 0 is closed). When time is up kDeadlineExceeded
// names the ranks that never came, here and on every rank that did. A rank that comes again
// replaces its older self. Ranks that were started with another world size end the rendezvous of
// all with kMismatch.
Result<std::vector<Connection>> AssembleRanks(RendezvousSpec spec, Deadline deadline);

// The others: a connection to rank 0, tried again every 10 to 500 ms.
Result<Connection> JoinHub(const RendezvousSpec& spec, Deadline deadline);

}  // namespace internal
}  // namespace zpp
