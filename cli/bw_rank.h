// One rank of `zpp bw`, from connecting to the report.
#pragma once

#include "cli/bw_args.h"
#include "cli/bw_result.h"
#include "cli/bw_values.h"
#include "collectives/connect.h"

namespace zpp::cli {

// What ranks connect with.
ConnectOptions OptionsFor(const BwArgs& args);

// One sentence, and with `json` "-" an error as JSON too. Returns the exit code.
int ReportBadInput(const std::string& json, const std::string& collective, const Status& why);

// Connects as the launcher's variables say (they name `rank` too), measures, and lets rank 0 print
// the table and write the JSON. Where one rank cannot go on (its --data, its memory), all end at
// once and rank 0 says why. Returns the exit code.
int RunBwRank(BwArgs args, int rank);

// The part that needs only a communicator; rank 0 prints (to standard error when the JSON goes to
// standard output). The report holds what was finished when the Status is bad.
Status MeasureAll(const BwArgs& args, const Values& values, Communicator& comm, BwReport* report);

}  // namespace zpp::cli
