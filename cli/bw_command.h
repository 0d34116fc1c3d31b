// `zpp bw`: collectives measured like nccl-tests and perftest.
#pragma once

#include "cli/command.h"

namespace zpp::cli {

void AddBwCommand(CLI::App& app, CommandResult* chosen);

}  // namespace zpp::cli
