// Google Benchmark over ranks as threads: what plans, executor and codec cost when the fabric costs
// nothing. `zpp bw` measures real transports; compare_mpi compares them.
#include <benchmark/benchmark.h>

#include <cmath>
#include <memory>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/transport/in_process.h"

namespace zpp {
namespace {

// One group of ranks per benchmark: benchmark's thread t is rank t. Two nodes from four ranks on.
std::vector<std::unique_ptr<Communicator>> group;

void MakeGroup(const benchmark::State& state) {
  const int world = state.threads();
  const Topology topology = world < 4 ? Topology::Flat(world) : *Topology::EvenNodes(world, 2);
  InProcessWorld made = MakeInProcessWorld(world);
  group.clear();
  for (int rank = 0; rank < world; ++rank) {
    group.push_back(
        *Communicator::Create(std::move(made.transports[rank]), made.controls[rank], topology, {}));
  }
}

void DropGroup(const benchmark::State&) { group.clear(); }

CollectivePolicy Coded(bool compressed) {
  CollectivePolicy policy;
  if (!compressed) return policy;
  policy = CollectivePolicy::Gradients();
  policy.min_compress_bytes = 0;
  return policy;
}

// Args: elements of the whole vector, compressed or not.
class Rank {
 public:
  Rank(benchmark::State& state, int64_t in_elems, int64_t out_elems)
      : comm(*group[state.thread_index()]), in(in_elems), out(out_elems, NAN) {
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(comm.rank() + 1);
    call.policy = Coded(state.range(1) != 0);
  }
  ConstVec In() const { return {DType::kF32, in.data(), static_cast<int64_t>(in.size())}; }
  Vec Out() { return {DType::kF32, out.data(), static_cast<int64_t>(out.size())}; }
  // Every element of a sum of constant vectors is the same: what codecs keep exactly, but for
  // rounding.
  bool Right(double want) const {
    for (const float x : out) {
      if (!(std::fabs(x - want) <= 0.02 * want)) return false;
    }
    return true;
  }

  Communicator& comm;
  std::vector<float> in, out;
  CallOptions call;
};

double SumOfRanks(int world) { return world * (world + 1) / 2.0; }

template <typename Call>
void Run(benchmark::State& state, Rank& rank, double want, Call call) {
  Status status;
  for (auto _ : state) {
    if (status.ok()) status = call();
  }
  if (!status.ok()) return state.SkipWithError(status.message().c_str());
  if (!rank.Right(want)) return state.SkipWithError("wrong result");
  if (state.thread_index() == 0) {
    state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
    state.SetLabel(state.range(1) != 0 ? "int8/int4" : "plain");
  }
}

void AllReduce(benchmark::State& state) {
  Rank rank(state, state.range(0), state.range(0));
  Run(state, rank, SumOfRanks(state.threads()),
      [&] { return rank.comm.AllReduce(rank.In(), rank.Out(), rank.call); });
}

void ReduceScatter(benchmark::State& state) {
  Rank rank(state, state.range(0), state.range(0) / state.threads());
  Run(state, rank, SumOfRanks(state.threads()),
      [&] { return rank.comm.ReduceScatter(rank.In(), rank.Out(), rank.call); });
}

void Barrier(benchmark::State& state) {
  Communicator& comm = *group[state.thread_index()];
  Status status;
  for (auto _ : state) {
    if (status.ok()) status = comm.Barrier();
  }
  if (!status.ok()) state.SkipWithError(status.message().c_str());
}

void Sizes(benchmark::internal::Benchmark* b) {
  b->ArgsProduct({{2, 1 << 14, 1 << 20}, {0, 1}})->ArgNames({"elems", "coded"});
  b->Threads(2)->Threads(4)->UseRealTime()->Setup(MakeGroup)->Teardown(DropGroup);
}
BENCHMARK(AllReduce)->Apply(Sizes);
void ShardSizes(benchmark::internal::Benchmark* b) {
  b->ArgsProduct({{4, 1 << 14, 1 << 20}, {0, 1}})->ArgNames({"elems", "coded"});
  b->Threads(2)->Threads(4)->UseRealTime()->Setup(MakeGroup)->Teardown(DropGroup);
}
BENCHMARK(ReduceScatter)->Apply(ShardSizes);
BENCHMARK(Barrier)->Threads(2)->Threads(4)->UseRealTime()->Setup(MakeGroup)->Teardown(DropGroup);

}  // namespace
}  // namespace zpp

int main(int argc, char** argv) {
#ifndef NDEBUG
  std::fprintf(stderr,
               "collectives_benchmark: built for debugging, its times would mean nothing\n");
  return 2;
#endif
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
