#include "cli/env_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/json_file.h"
#include "common/env.h"
#include "common/strict_json.h"

namespace zpp::cli {
namespace {

nlohmann::json EnvJson() {
  nlohmann::json variables = nlohmann::json::array();
  for (const EnvInfo& info : EnvTable()) {
    variables.push_back({{"name", info.name},
                         {"value", GetEnv(info.var)},
                         {"set", EnvIsSet(info.var)},
                         {"default", info.fallback},
                         {"values", info.values},
                         {"meaning", info.meaning}});
  }
  return {{"version", 1}, {"variables", std::move(variables)}};
}

std::string Shown(const EnvInfo& info) {
  const std::string value = Printable(GetEnv(info.var), 256);
  return (EnvIsSet(info.var) ? "* " : "  ") + (value.empty() ? "-" : value);
}

void PrintEnv() {
  size_t name_width = 0, value_width = 5, fallback_width = 7;
  for (const EnvInfo& info : EnvTable()) {
    name_width = std::max(name_width, info.name.size());
    value_width = std::max(value_width, Shown(info).size());
    fallback_width = std::max(fallback_width, info.fallback.size());
  }
  const auto row = [&](std::string_view name, std::string_view value, std::string_view fallback,
                       std::string_view meaning) {
    std::printf("%-*.*s  %-*.*s  %-*.*s  %.*s\n", static_cast<int>(name_width),
                static_cast<int>(name.size()), name.data(), static_cast<int>(value_width),
                static_cast<int>(value.size()), value.data(), static_cast<int>(fallback_width),
                static_cast<int>(fallback.size()), fallback.data(),
                static_cast<int>(meaning.size()), meaning.data());
  };
  row("variable", "  value", "default", "meaning (values)");
  for (const EnvInfo& info : EnvTable()) {
    const std::string meaning = std::string(info.meaning) + " (" + std::string(info.values) + ")";
    row(info.name, Shown(info), info.fallback.empty() ? "-" : info.fallback, meaning);
  }
  std::printf("* set in the environment\n");
}

int RunEnv(const std::string& json) {
  if (json != "-") PrintEnv();
  return json.empty() ? kExitOk : Report(WriteJson(json, EnvJson()));
}

}  // namespace

void AddEnvCommand(CLI::App& app, CommandResult* chosen) {
  CLI::App* env = app.add_subcommand("env", "every ZPP_* variable: value, default, meaning");
  auto json = std::make_shared<std::string>();
  env->add_option("--json", *json, "the same as JSON to a file, - for standard output");
  env->callback([json, chosen] { chosen->run = [json] { return RunEnv(*json); }; });
}

}  // namespace zpp::cli
