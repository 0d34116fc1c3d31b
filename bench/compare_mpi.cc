// Open MPI and zpp, uncompressed, on the same buffers in the same run, taking turns:
//   mpirun -n 4 compare_mpi [--sizes 1M,16M] [--iters 15] [--json FILE]
// Prints medians over iterations of the maximum over ranks, and their ratios. Exit code 1 when a
// result is wrong.
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/json_file.h"
#include "cli/parse.h"
#include "collectives/connect.h"

namespace zpp::bench {
namespace {

using nlohmann::json;

struct Options {
  std::vector<std::string> sizes = {"1M", "16M"};
  int iters = 15;
  int warmup = 3;
  int latency_batches = 15;
  int latency_ops = 300;
  std::string json;
};

// Small whole numbers: sums of a few of them are exact, whatever the order.
float ValueOf(int rank, int64_t i) { return static_cast<float>((rank + 1) * (1 + i % 7)); }

double SumOfRanks(int world) { return world * (world + 1) / 2.0; }

// One side of a comparison. `prepare` and `check` are not timed.
struct Contest {
  std::string name;
  int64_t bytes_per_rank;
  std::function<void()> prepare;
  std::function<bool()> mpi, zpp;
  std::function<bool()> check;
};

class Arena {
 public:
  Arena(Communicator& comm, int64_t elems)
      : comm_(comm), rank_(comm.rank()), world_(comm.world()), elems_(elems) {
    mine_.resize(static_cast<size_t>(elems * world_));
    for (int64_t i = 0; i < elems * world_; ++i) mine_[i] = ValueOf(rank_, i);
    out_.resize(mine_.size());
  }

  std::vector<Contest> Contests() {
    return {Gather(false), Gather(true),     Scatter(false),
            Scatter(true), AllReduce(false), AllReduce(true)};
  }

 private:
  int count() const { return static_cast<int>(elems_); }
  int64_t bytes() const { return elems_ * 4; }
  ConstVec In(const float* data, int64_t elems) const { return {DType::kF32, data, elems}; }
  Vec Out(float* data, int64_t elems) const { return {DType::kF32, data, elems}; }
  void Poison() { std::memset(out_.data(), 0xff, out_.size() * 4); }

  // Rank r's share holds its elements r*elems...; all of them end in `out_`.
  Contest Gather(bool in_place) {
    float* own = out_.data() + rank_ * elems_;
    const float* source = mine_.data() + rank_ * elems_;
    return {in_place ? "all_gather in place" : "all_gather",
            bytes(),
            [=, this] {
              Poison();
              if (in_place) std::memcpy(own, source, static_cast<size_t>(bytes()));
            },
            [=, this] {
              return MPI_Allgather(in_place ? MPI_IN_PLACE : source, count(), MPI_FLOAT,
                                   out_.data(), count(), MPI_FLOAT, MPI_COMM_WORLD) == MPI_SUCCESS;
            },
            [=, this] {
              return comm_
                  .AllGather(In(in_place ? own : source, elems_), Out(out_.data(), elems_ * world_))
                  .ok();
            },
            [this] {
              for (int64_t i = 0; i < elems_ * world_; ++i) {
                if (out_[i] != ValueOf(static_cast<int>(i / elems_), i)) return false;
              }
              return true;
            }};
  }

  // In place, Open MPI leaves the share at the buffer's start and zpp at the share's own place:
  // both are looked at.
  Contest Scatter(bool in_place) {
    return {in_place ? "reduce_scatter in place" : "reduce_scatter",
            bytes(),
            [=, this] {
              Poison();
              if (in_place) std::memcpy(out_.data(), mine_.data(), mine_.size() * 4);
              scattered_ = out_.data();
            },
            [=, this] {
              scattered_ = out_.data();
              return MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : mine_.data(), out_.data(),
                                              count(), MPI_FLOAT, MPI_SUM,
                                              MPI_COMM_WORLD) == MPI_SUCCESS;
            },
            [=, this] {
              const float* in = in_place ? out_.data() : mine_.data();
              scattered_ = in_place ? out_.data() + rank_ * elems_ : out_.data();
              return comm_.ReduceScatter(In(in, elems_ * world_), Out(scattered_, elems_)).ok();
            },
            [this] {
              for (int64_t i = 0; i < elems_; ++i) {
                const double want =
                    SumOfRanks(world_) * static_cast<double>(1 + (rank_ * elems_ + i) % 7);
                if (scattered_[i] != want) return false;
              }
              return true;
            }};
  }

  Contest AllReduce(bool in_place) {
    return {in_place ? "all_reduce in place" : "all_reduce",
            bytes(),
            [=, this] {
              Poison();
              if (in_place) std::memcpy(out_.data(), mine_.data(), static_cast<size_t>(bytes()));
            },
            [=, this] {
              return MPI_Allreduce(in_place ? MPI_IN_PLACE : mine_.data(), out_.data(), count(),
                                   MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS;
            },
            [=, this] {
              const float* in = in_place ? out_.data() : mine_.data();
              return comm_.AllReduce(In(in, elems_), Out(out_.data(), elems_)).ok();
            },
            [this] {
              for (int64_t i = 0; i < elems_; ++i) {
                if (out_[i] != SumOfRanks(world_) * static_cast<double>(1 + i % 7)) return false;
              }
              return true;
            }};
  }

  Communicator& comm_;
  int rank_, world_;
  int64_t elems_;
  std::vector<float> mine_, out_;
  float* scattered_ = nullptr;
};

double Median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + x.size() / 2, x.end());
  return x[x.size() / 2];
}

// The median of the maxima over ranks; the same on every rank.
double MedianOfSlowest(std::vector<double> mine_s) {
  std::vector<double> slowest_s(mine_s.size());
  MPI_Allreduce(mine_s.data(), slowest_s.data(), static_cast<int>(mine_s.size()), MPI_DOUBLE,
                MPI_MAX, MPI_COMM_WORLD);
  return Median(slowest_s);
}

bool AllRanks(bool good) {
  int mine = good ? 1 : 0, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all == 1;
}

struct Outcome {
  double mpi_s = 0, zpp_s = 0;
  bool good = true;
};

Outcome Run(const Contest& contest, const Options& options) {
  std::vector<double> mpi_s, zpp_s;
  Outcome outcome;
  for (int i = -options.warmup; i < options.iters; ++i) {
    for (const bool ours : {false, true}) {
      contest.prepare();
      MPI_Barrier(MPI_COMM_WORLD);
      const double start_s = MPI_Wtime();
      outcome.good = (ours ? contest.zpp() : contest.mpi()) && outcome.good;
      const double took_s = MPI_Wtime() - start_s;
      if (i >= 0) (ours ? zpp_s : mpi_s).push_back(took_s);
      if (i + 1 == options.iters || i == -options.warmup)
        outcome.good = contest.check() && outcome.good;
    }
  }
  outcome.mpi_s = MedianOfSlowest(mpi_s);
  outcome.zpp_s = MedianOfSlowest(zpp_s);
  outcome.good = AllRanks(outcome.good);
  return outcome;
}

// Back to back, as small messages come; per operation.
Outcome RunSmall(const std::function<bool()>& mpi, const std::function<bool()>& zpp,
                 const Options& options) {
  std::vector<double> mpi_s, zpp_s;
  Outcome outcome;
  for (int batch = -2; batch < options.latency_batches; ++batch) {
    for (const bool ours : {false, true}) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double start_s = MPI_Wtime();
      for (int i = 0; i < options.latency_ops; ++i) {
        outcome.good = (ours ? zpp() : mpi()) && outcome.good;
      }
      const double each_s = (MPI_Wtime() - start_s) / options.latency_ops;
      if (batch >= 0) (ours ? zpp_s : mpi_s).push_back(each_s);
    }
  }
  outcome.mpi_s = MedianOfSlowest(mpi_s);
  outcome.zpp_s = MedianOfSlowest(zpp_s);
  outcome.good = AllRanks(outcome.good);
  return outcome;
}

Result<std::vector<std::string>> GatherOverMpi(const std::string& mine) {
  int world = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const int bytes = static_cast<int>(mine.size());
  std::vector<int> sizes(static_cast<size_t>(world)), starts(static_cast<size_t>(world), 0);
  MPI_Allgather(&bytes, 1, MPI_INT, sizes.data(), 1, MPI_INT, MPI_COMM_WORLD);
  for (int r = 1; r < world; ++r) starts[r] = starts[r - 1] + sizes[r - 1];
  std::string all(static_cast<size_t>(starts.back() + sizes.back()), '\0');
  MPI_Allgatherv(mine.data(), bytes, MPI_BYTE, all.data(), sizes.data(), starts.data(), MPI_BYTE,
                 MPI_COMM_WORLD);
  std::vector<std::string> blobs;
  for (int r = 0; r < world; ++r) blobs.push_back(all.substr(starts[r], sizes[r]));
  return blobs;
}

class Report {
 public:
  Report(int rank, int world) : rank_(rank), world_(world) {
    if (rank_ == 0) {
      std::printf("# %d ranks\n%-24s %12s %12s %12s %8s\n", world_, "", "bytes/rank", "Open MPI us",
                  "zpp us", "ratio");
    }
  }

  void Add(const std::string& name, int64_t bytes, const Outcome& outcome) {
    const double ratio = outcome.mpi_s / outcome.zpp_s;
    good_ = good_ && outcome.good;
    rows_.push_back({{"name", name},
                     {"bytes_per_rank", bytes},
                     {"mpi_us", outcome.mpi_s * 1e6},
                     {"zpp_us", outcome.zpp_s * 1e6},
                     {"ratio", ratio},
                     {"good", outcome.good}});
    if (rank_ != 0) return;
    std::printf("%-24s %12lld %12.1f %12.1f %7.2fx%s\n", name.c_str(),
                static_cast<long long>(bytes), outcome.mpi_s * 1e6, outcome.zpp_s * 1e6, ratio,
                outcome.good ? "" : "  WRONG");
    std::fflush(stdout);
  }

  int Write(const std::string& path) const {
    const json all = {{"ranks", world_}, {"results", rows_}};
    const int code = rank_ == 0 && !path.empty() ? cli::Report(cli::WriteJson(path, all)) : 0;
    return good_ ? code : cli::kExitFailed;
  }

 private:
  int rank_, world_;
  bool good_ = true;
  json rows_ = json::array();
};

void CompareSmall(Communicator& comm, const Options& options, Report* report) {
  float in[2] = {1, 2}, out[2] = {0, 0};
  const auto world = static_cast<float>(comm.world());
  // Looks at the result and takes it away, so that the next one has to be made anew.
  const auto right = [&] {
    const bool good = out[0] == world && out[1] == 2 * world;
    out[0] = out[1] = 0;
    return good;
  };
  report->Add(
      "all_reduce", 8,
      RunSmall(
          [&] {
            return MPI_Allreduce(in, out, 2, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS &&
                   right();
          },
          [&] {
            return comm.AllReduce({DType::kF32, in, 2}, {DType::kF32, out, 2}).ok() && right();
          },
          options));
  report->Add("barrier", 0,
              RunSmall([] { return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS; },
                       [&] { return comm.Barrier().ok(); }, options));
}

int Compare(const Options& options) {
  int rank = 0, world = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  auto connected = ConnectWithCallback(GatherOverMpi, world, rank);
  if (!connected.ok()) return cli::Report(connected.status());
  Communicator& comm = **connected;
  Report report(rank, world);
  for (const std::string& size : options.sizes) {
    const Result<int64_t> bytes = cli::ParseSize("--sizes", size);
    if (!bytes.ok()) return cli::Report(bytes.status());
    Arena arena(comm, *bytes / 4);
    for (const Contest& contest : arena.Contests()) {
      report.Add(contest.name, contest.bytes_per_rank, Run(contest, options));
    }
  }
  CompareSmall(comm, options, &report);
  const int code = report.Write(options.json);
  return std::max(code, cli::Report(comm.Shutdown(Deadline::In(10))));
}

}  // namespace
}  // namespace zpp::bench

int main(int argc, char** argv) {
#ifndef NDEBUG
  std::fprintf(stderr, "compare_mpi: built for debugging, its times would mean nothing\n");
  return zpp::cli::kExitUsage;
#endif
  MPI_Init(&argc, &argv);
  zpp::bench::Options options;
  CLI::App app{"Open MPI and zpp on the same buffers in the same run", "compare_mpi"};
  app.add_option("--sizes", options.sizes, "bytes per rank")->delimiter(',');
  app.add_option("--iters", options.iters, "iterations of each")->check(CLI::Range(1, 100000));
  app.add_option("--json", options.json, "a file, or - for standard output");
  int code = 0;
  try {
    app.parse(argc, argv);
    code = zpp::bench::Compare(options);
  } catch (const CLI::ParseError& error) {
    code = app.exit(error) == 0 ? 0 : zpp::cli::kExitUsage;
  }
  MPI_Finalize();
  return code;
}
