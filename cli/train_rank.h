// One rank of `zpp train`.
#pragma once

#include <string>

#include "cli/lm/text.h"
#include "cli/train_args.h"
#include "cli/train_run.h"
#include "cli/train_session.h"
#include "collectives/connect.h"

namespace zpp::cli {

ConnectOptions OptionsFor(const TrainArgs& args);

// One sentence, and with `json` "-" an error as JSON too. Returns the exit code.
int ReportBadTraining(const std::string& json, const Status& why);

// What can be wrong with files on this host: --data, --resume, and where rank 0 writes --json,
// --save and --export. Makes the folder of --save.
Result<lm::Text> PrepareText(const TrainArgs& args, bool writes);

// Connects as the launcher's variables say, trains (twice with --compare), and lets rank 0 print
// and write the JSON. Where one rank cannot go on, all end at once and rank 0 says why. Returns the
// exit code.
int RunTrainRank(const TrainArgs& args, int rank);

// The part that needs only a communicator: `args.baseline` first, where there is one. Nothing is
// printed but what `events` do. The report holds what was done when the Status is bad.
Status TrainAll(const TrainArgs& args, const lm::Text& text, Communicator& comm,
                const TrainEvents& events, TrainReport* report);

}  // namespace zpp::cli
