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

// 0 when ok, kExitUsage when the caller can fix it (RemedyFor), else kExitFailed.
int ExitCodeFor(const Status& status);
// Prints "zpp: <message>" to standard error when it is not ok, and returns its exit code.
int Report(const Status& status);

}  // namespace zpp::cli
