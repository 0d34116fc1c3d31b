// Every environment variable of zpp's own, in one table. `zpp env` prints it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/status.h"

namespace zpp {

enum class EnvVar : uint8_t {
  kLog,
  kTransport,
  kTimeout,
  kCommId,
  kJobId,
  kNodeId,
  kLocalSize,
  kTopologyFile,
  kSocketIfname,
  kUcxProfile,
  kNodeWindow,
  kHeartbeat,
  kThreads,
  kChunkBytes,
  kCheckWire,
  kTarget,
};

struct EnvInfo {
  EnvVar var;
  std::string_view name;      // "ZPP_LOG"
  std::string_view values;    // "debug | info | warning | error | off"
  std::string_view fallback;  // the value when it is unset
  std::string_view meaning;   // one sentence
};

std::span<const EnvInfo> EnvTable();
const EnvInfo& Describe(EnvVar var);
// The variable's value, or its default when unset or empty.
std::string GetEnv(EnvVar var);
bool EnvIsSet(EnvVar var);
// As a finite number in [low, high]; an error names the variable, its value and what it takes.
Result<double> GetEnvNumber(EnvVar var, double low, double high);
Result<int64_t> GetEnvInteger(EnvVar var, int64_t low, int64_t high);

}  // namespace zpp
