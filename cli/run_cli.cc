#include "cli/run_cli.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/bw_command.h"
#include "cli/command.h"
#include "cli/env_command.h"
#include "cli/topo_command.h"
#include "cli/train_command.h"
#include "cli/version.h"
#include "common/strict_json.h"

namespace zpp::cli {
namespace {

std::vector<std::string> Commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

// "bw, topo or env"
std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 < names.size() ? ", " : " or ";
    text += names[i];
  }
  return text;
}

// What stands where a command should, when it is none; nothing when CLI11 can tell what is wrong.
std::string NoCommand(const CLI::App& app, int argc, const char* const* argv) {
  const std::vector<std::string> commands = Commands(app);
  if (argc < 2) return "a command is missing: " + Listed(commands);
  const std::string word = argv[1];
  if (word.starts_with("-")) {
    const bool known = app.get_option_no_throw(word) != nullptr;
    return known ? "" : "there is no flag '" + Printable(word) + "'";
  }
  if (std::ranges::find(commands, word) != commands.end()) return "";
  return "there is no command '" + Printable(word) + "': " + Listed(commands);
}

int Refuse(const std::string& sentence, const std::string& command = "zpp") {
  std::fprintf(stderr, "zpp: %s (see %s --help)\n", sentence.c_str(), command.c_str());
  return kExitUsage;
}

// CLI11's own text, in one sentence after our prefix.
int ReportParseError(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return Refuse(error.what(), parsed.empty() ? "zpp" : "zpp " + parsed.front()->get_name());
}

}  // namespace

int RunCli(int argc, const char* const* argv) {
  CLI::App app{"zpp: quantized collectives for distributed training", "zpp"};
  app.set_version_flag("--version", std::string("zpp ") + kVersion);
  app.require_subcommand(1);
  CommandResult chosen;
  // One line per subcommand.
  AddBwCommand(app, &chosen);
  AddTrainCommand(app, &chosen);
  AddTopoCommand(app, &chosen);
  AddEnvCommand(app, &chosen);
  if (const std::string text = NoCommand(app, argc, argv); !text.empty()) return Refuse(text);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ReportParseError(app, error);
  }
  return chosen.run ? chosen.run() : kExitUsage;
}

}  // namespace zpp::cli
