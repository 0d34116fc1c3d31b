// Lines to standard error, "zpp [rank 3] warning: ...". ZPP_LOG chooses the least level that is
// printed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace zpp {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };

// "debug", "info", "warning", "error" or "off", as ZPP_LOG takes them.
std::optional<LogLevel> ParseLogLevel(std::string_view name);

// One write(2) per line, so lines of several processes do not mix. Thread-safe.
void Log(LogLevel level, std::string_view message);
bool LogEnabled(LogLevel level);
// Printed with every later line of this process; -1 (the default) prints none.
void SetLogRank(int rank);

}  // namespace zpp
