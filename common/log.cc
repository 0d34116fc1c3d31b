#include "common/log.h"

#include <unistd.h>

#include <atomic>
#include <string>

#include "common/env.h"

namespace zpp {
namespace {

std::atomic<int> log_rank{-1};

void Write(const std::string& line) {
  // Nothing sensible can be done when standard error is gone.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

std::string_view Name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      return "off";
  }
  return "?";
}

LogLevel Threshold() {
  static const LogLevel level = [] {
    const std::string name = GetEnv(EnvVar::kLog);
    const std::optional<LogLevel> asked = ParseLogLevel(name);
    if (!asked) {
      const EnvInfo& info = Describe(EnvVar::kLog);
      Write("zpp warning: " + std::string(info.name) + "='" + name + "': expected " +
            std::string(info.values) + "\n");
    }
    return asked.value_or(LogLevel::kWarning);
  }();
  return level;
}

}  // namespace

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError, LogLevel::kOff}) {
    if (Name(level) == name) return level;
  }
  return {};
}

bool LogEnabled(LogLevel level) { return level >= Threshold() && level != LogLevel::kOff; }

void SetLogRank(int rank) { log_rank.store(rank, std::memory_order_relaxed); }

void Log(LogLevel level, std::string_view message) {
  if (!LogEnabled(level)) return;
  const int rank = log_rank.load(std::memory_order_relaxed);
  std::string line = "zpp";
  if (rank >= 0) line += " [rank " + std::to_string(rank) + "]";
  line.append(" ").append(Name(level)).append(": ").append(message).append("\n");
  Write(line);
}

}  // namespace zpp
