// fault_runner --kind kill|stop|cut --transport shm|tcp|mixed --runs 100: real signals and real
// link cuts in the middle of all-reduces; a table of what the survivors noticed. Exit code 1 when
// anything was not as it must be, 2 for bad usage.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/fault/fault_run.h"

namespace zpp::test {
namespace {

struct Totals {
  int counted = 0, outside = 0, zombies = 0, hub = 0;
  std::vector<double> first_s, last_s;
  std::vector<std::string> misses;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}
double Largest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::ranges::max_element(values);
}

void Add(const FaultReport& report, int run, Totals* totals) {
  // A victim hit between two collectives is judged like any other, but does not count as a run.
  report.in_collective ? ++totals->counted : ++totals->outside;
  totals->zombies += report.zombie;
  totals->hub += report.victim == 0;
  totals->first_s.push_back(report.first_s);
  totals->last_s.push_back(report.last_s);
  for (const std::string& miss : report.misses) {
    totals->misses.push_back("run " + std::to_string(run) + ", victim " +
                             std::to_string(report.victim) + ", " + miss);
    fprintf(stderr, "%s\n", totals->misses.back().c_str());
  }
}

void PrintTable(const std::string& kind, const FaultSetup& setup, const Totals& totals) {
  printf(
      "# %d ranks, all-reduce of %lld fp32, deadline %.1f s; seconds from the fault to the "
      "survivors' errors\n",
      setup.ranks, static_cast<long long>(setup.elems), setup.deadline_s);
  printf("# %-6s %-9s %6s %9s %6s %8s %12s %11s %8s %7s\n", "fault", "transport", "runs",
         "(outside)", "hub", "zombies", "median first", "median last", "longest", "misses");
  printf("  %-6s %-9s %6d %9d %6d %8d %12.3f %11.3f %8.3f %7zu\n", kind.c_str(),
         setup.transport.c_str(), totals.counted, totals.outside, totals.hub, totals.zombies,
         Median(totals.first_s), Median(totals.last_s), Largest(totals.last_s),
         totals.misses.size());
}

bool WriteJson(const std::string& path, const std::string& kind, const FaultSetup& setup,
               const Totals& totals) {
  const nlohmann::json json = {{"version", 1},
                               {"kind", kind},
                               {"transport", setup.transport},
                               {"ranks", setup.ranks},
                               {"elems", setup.elems},
                               {"deadline_s", setup.deadline_s},
                               {"polling", setup.polling},
                               {"runs", totals.counted},
                               {"outside_a_collective", totals.outside},
                               {"hub_was_victim", totals.hub},
                               {"zombies", totals.zombies},
                               {"median_first_s", Median(totals.first_s)},
                               {"median_last_s", Median(totals.last_s)},
                               {"longest_s", Largest(totals.last_s)},
                               {"misses", totals.misses}};
  std::ofstream file(path);
  file << json.dump(2) << '\n';
  return static_cast<bool>(file.flush());
}

int Play(const std::string& kind, const FaultSetup& setup, int runs, const std::string& json_path) {
  Totals totals;
  for (int run = 0; totals.counted < runs && run < 2 * runs; ++run) {
    const Result<FaultReport> report = RunFault(setup, run);
    if (!report.ok()) {
      fprintf(stderr, "fault_runner: run %d: %s\n", run, report.status().ToString().c_str());
      return 1;
    }
    Add(*report, run, &totals);
  }
  PrintTable(kind, setup, totals);
  if (!json_path.empty() && !WriteJson(json_path, kind, setup, totals)) {
    fprintf(stderr, "fault_runner: cannot write %s\n", json_path.c_str());
    return 1;
  }
  return totals.misses.empty() && totals.counted == runs ? 0 : 1;
}

// UCX complains of every lost peer, unless it is told otherwise before it is loaded.
void QuietUcx(char** argv) {
  if (getenv("UCX_LOG_LEVEL") != nullptr) return;
  setenv("UCX_LOG_LEVEL", "fatal", 1);
  setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 1);
  execv("/proc/self/exe", argv);  // without it: only noisier
}

int Main(int argc, char** argv) {
  QuietUcx(argv);
  const std::map<std::string, FaultAction> kinds = {
      {"kill", FaultAction::kKill}, {"stop", FaultAction::kStop}, {"cut", FaultAction::kCut}};
  CLI::App app("Kills, stops or cuts off one rank in the middle of all-reduces, again and again.");
  FaultSetup setup;
  std::string kind = "kill", json_path;
  int runs = 20;
  app.add_option("--kind", kind, "kill, stop or cut (needs root)")->check(CLI::IsMember(kinds));
  app.add_option("--transport", setup.transport, "shm, tcp or mixed; a cut always runs over tcp")
      ->check(CLI::IsMember({"shm", "tcp", "mixed"}));
  app.add_option("--runs", runs)->check(CLI::Range(1, 100000));
  app.add_option("--ranks", setup.ranks)->check(CLI::Range(2, 64));
  app.add_option("--deadline", setup.deadline_s, "seconds a collective may take")
      ->check(CLI::Range(0.1, 60.0));
  app.add_option("--elems", setup.elems, "fp32 elements of an all-reduce")
      ->check(CLI::Range(1, 1 << 28));
  app.add_flag("--polling", setup.polling, "polls a Work instead of blocking in the call");
  app.add_option("--seed", setup.seed);
  app.add_option("--json", json_path, "also writes the summary there");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  setup.action = kinds.at(kind);
  if (setup.action == FaultAction::kCut) {
    setup.transport = "tcp";
    if (geteuid() != 0) {
      fprintf(stderr, "fault_runner: --kind cut makes network namespaces and needs root\n");
      return 2;
    }
  }
  return Play(kind, setup, runs, json_path);
}

}  // namespace
}  // namespace zpp::test

int main(int argc, char** argv) { return zpp::test::Main(argc, argv); }
