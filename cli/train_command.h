// `zpp train`
#pragma once

#include "cli/command.h"

namespace zpp::cli {

void AddTrainCommand(CLI::App& app, CommandResult* chosen);

}  // namespace zpp::cli
