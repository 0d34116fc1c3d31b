// What every subcommand of `zpp` shares: how it registers, and what its exit code says.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "common/status.h"

namespace zpp::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // wrong results, or a run that failed
inline constexpr int kExitUsage =
    2;  // bad input: one sentence said what is wrong, nothing was done

// The subcommand that was given, ready to run; filled by a CLI11 callback while the arguments are
// read. An argument that is wrong is reported by `run`, never thrown from the callback.
struct CommandResult {
  std::function<int()> run;
};

// Adds flags to one group of a subcommand's help.
class FlagGroup {
 public:
  FlagGroup(CLI::App& app, const char* name) : app_(app), name_(name) {}
  template <typename T>
  FlagGroup& Option(const char* flag, T& value, const char* help) {
    app_.add_option(flag, value, help)->group(name_);
    return *this;
  }
  FlagGroup& Flag(const char* flag, bool& value, const char* help) {
    app_.add_flag(flag, value, help)->group(name_);
    return *this;
  }

 private:
  CLI::App& app_;
  const char* name_;
};

// 0 when ok, kExitUsage when the caller can fix it (RemedyFor), else kExitFailed.
int ExitCodeFor(const Status& status);
// Prints "zpp: <message>" to standard error when it is not ok, and returns its exit code.
int Report(const Status& status);

}  // namespace zpp::cli
