// The whole program behind main(), callable from tests.
#pragma once

namespace zpp::cli {

// Reads the arguments, runs the subcommand, returns the exit code (see command.h).
int RunCli(int argc, const char* const* argv);

}  // namespace zpp::cli
