// `zpp topo`: what names this machine's node, and the topology that is declared or given.
#pragma once

#include "cli/command.h"

namespace zpp::cli {

void AddTopoCommand(CLI::App& app, CommandResult* chosen);

}  // namespace zpp::cli
