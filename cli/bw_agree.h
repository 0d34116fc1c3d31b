// Ranks of a job find out together whether all of them can go on.
#pragma once

#include "cli/bw_args.h"
#include "collectives/communicator.h"

namespace zpp::cli {

// What must be equal on all ranks before they measure together.
struct Readiness {
  Status status;           // why this rank cannot go on; ok when it can
  uint64_t arguments = 0;  // digest of what is measured
  uint64_t values = 0;     // digest of the values that are sent
};

uint64_t DigestOf(const BwArgs& args);

// Collective. The same answer on all ranks: ok, or the first rank's complaint with its name and
// code, or who differs from rank 0 (kMismatch). Whoever fails here need not be waited for.
Status AgreeToGoOn(Communicator& comm, const Readiness& mine);

}  // namespace zpp::cli
