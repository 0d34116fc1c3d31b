// Runs a body once per rank, as threads or as forked processes, and collects how each ended.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "common/deadline.h"
#include "common/status.h"

namespace zpp::test {

// What a rank does; its value travels to the parent.
using RankBody = std::function<Result<std::string>(int rank)>;

struct RankOutcome {
  enum Kind { kReturned, kExited, kSignalled, kTimedOut };
  Kind kind = kTimedOut;
  Status status;      // kReturned: what the body returned
  std::string value;  // kReturned and ok
  int detail = 0;     // kExited: exit code, kSignalled: signal
  bool ok() const { return kind == kReturned && status.ok(); }
  std::string ToString() const;
};

// Every rank ended well; otherwise says how each of the others did.
testing::AssertionResult AllOk(const std::vector<RankOutcome>& outcomes);

// Threads cannot be ended from outside: bound everything in the body by a Deadline.
std::vector<RankOutcome> RunThreads(int world, const RankBody& body);

// Fork, run, collect. What is not back within `seconds` is killed. Only from a single-threaded
// parent.
std::vector<RankOutcome> RunProcesses(int world, double seconds, const RankBody& body);

}  // namespace zpp::test

// In a RankBody or anything that returns Status: a failed check ends the rank with file, line and
// text.
#define ZPP_REQUIRE(condition)                                                               \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      return ::zpp::Internal(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " + \
                             #condition);                                                    \
    }                                                                                        \
  } while (false)
#define ZPP_REQUIRE_MSG(condition, text)                                                     \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      return ::zpp::Internal(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " + \
                             #condition + ": " + (text));                                    \
    }                                                                                        \
  } while (false)
