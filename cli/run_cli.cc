#include "cli/run_cli.h"

#include <cstdio>
#include <string>

#include "cli/bw_command.h"
#include "cli/command.h"
#include "cli/env_command.h"
#include "cli/topo_command.h"
#include "cli/version.h"

namespace zpp::cli {
namespace {

// CLI11's own text, in one sentence after our prefix.
int ReportParseError(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
  std::fprintf(stderr, "zpp: %s (see zpp --help)\n", error.what());
  return kExitUsage;
}

}  // namespace

int RunCli(int argc, const char* const* argv) {
  CLI::App app{"zpp: quantized collectives for distributed training", "zpp"};
  app.set_version_flag("--version", std::string("zpp ") + kVersion);
  app.require_subcommand(1);
  CommandResult chosen;
  // One line per subcommand.
  AddBwCommand(app, &chosen);
  AddTopoCommand(app, &chosen);
  AddEnvCommand(app, &chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ReportParseError(app, error);
  }
  return chosen.run ? chosen.run() : kExitUsage;
}

}  // namespace zpp::cli
