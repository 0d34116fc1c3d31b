// Starts this program again, once per rank, as torchrun would.
#pragma once

#include <string>
#include <vector>

namespace zpp::cli {

struct LaunchSpec {
  int ranks = 1;
  std::vector<std::string> args;  // of each rank, without the program's name
  std::string program;            // empty: this very program
  double grace_s = 5;             // for the others to end by themselves after the first has failed
};

// Every rank gets torchrun's variables with a free port of the loopback interface. Rank 0's output
// is forwarded; the others' standard output is dropped and their messages are shown when they are
// the first to fail. Returns the first non-zero exit code (128 + signal for a rank that was killed,
// or when a signal ended the launcher), 0 when all are well. Every rank is reaped, whatever
// happens; ranks die with the launcher.
int Launch(const LaunchSpec& spec);

// `args` without --ranks and its value, in either spelling.
std::vector<std::string> WithoutRanksFlag(const std::vector<std::string>& args);

}  // namespace zpp::cli
