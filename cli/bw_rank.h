// One rank of `zpp bw`, from connecting to the report.
#pragma once

#include "cli/bw_args.h"
#include "cli/bw_result.h"
#include "cli/bw_values.h"
#include "collectives/communicator.h"

namespace zpp::cli {

// Connects as the launcher's variables say (they name `rank` too), measures, and lets rank 0 print
// the table and write the JSON. Returns the exit code.
int RunBwRank(const BwArgs& args, int rank);

// The part that needs only a communicator; rank 0 prints (to standard error when the JSON goes to
// standard output). The report holds what was finished when the Status is bad.
Status MeasureAll(const BwArgs& args, const Values& values, Communicator& comm, BwReport* report);

}  // namespace zpp::cli
