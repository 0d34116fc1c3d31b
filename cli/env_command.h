// `zpp env`: every ZPP_* variable with its value, what it takes and what it means.
#pragma once

#include "cli/command.h"

namespace zpp::cli {

void AddEnvCommand(CLI::App& app, CommandResult* chosen);

}  // namespace zpp::cli
