// What `zpp bw` has measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bw_args.h"
#include "topology/topology.h"

namespace zpp::cli {

// Per iteration, summed over ranks. Intra: tier 0 (inside a node); inter: every tier above.
struct WireBytes {
  int64_t intra = 0;
  int64_t inter = 0;
  int64_t total() const { return intra + inter; }
  bool operator==(const WireBytes&) const = default;
};

// One way of running one size.
struct BwRun {
  double time_us = 0;  // median over iterations of the maximum over ranks
  double alg_bw = 0;   // GB/s: size / time
  double bus_bw = 0;   // GB/s: alg_bw times nccl-tests' factor of the collective
  WireBytes wire;
  WireBytes planned;   // by the plans; another number than `wire` makes the run fail
  int64_t nwrong = 0;  // elements outside the documented bound, and ranks whose bits differ
  // ||result - exact|| / ||exact|| over the finite elements of all ranks; NaN when there are none.
  double rel_error = 0;
  std::optional<double> predicted_us;  // by the simulator, where the links are known
  std::string reason;                  // why the plan is what it is
  std::string plan_text;               // rank 0's plan, when asked for
};

struct BwRow {
  int64_t size_bytes = 0;
  int64_t count = 0;
  int iterations = 0;
  BwRun baseline;
  std::optional<BwRun> compressed;
  double speedup() const { return compressed ? baseline.time_us / compressed->time_us : 0; }
};

struct RankPlace {
  int pid = 0;
  std::string host;
  int node = 0;
};

struct BwReport {
  Topology topology;
  std::string transport;
  std::vector<RankPlace> places;
  std::vector<std::string> notes;  // about the data file
  std::vector<BwRow> rows;
  std::string error;  // why it ended early; empty when it did not

  int64_t wrong() const {
    int64_t sum = 0;
    for (const BwRow& row : rows) {
      sum += row.baseline.nwrong + (row.compressed ? row.compressed->nwrong : 0);
    }
    return sum;
  }
  bool as_planned() const {
    for (const BwRow& row : rows) {
      if (row.baseline.wire != row.baseline.planned) return false;
      if (row.compressed && row.compressed->wire != row.compressed->planned) return false;
    }
    return true;
  }
  bool good() const { return wrong() == 0 && as_planned(); }
};

}  // namespace zpp::cli
