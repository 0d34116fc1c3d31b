// Google Benchmark: size and time of plans, proofs and prices.
#include <benchmark/benchmark.h>

#include "collectives/plan/checker.h"
#include "collectives/plan/simulator.h"

namespace zpp {
namespace {

// Nodes of 8; int8 inside, int4 across, int8 gathered.
struct Setting {
  explicit Setting(int world) {
    const int fanout[] = {8, world / 8};
    topology = std::move(Topology::Regular(fanout)).value();
    parts = Partition::Even(int64_t{1} << 30, world, 256);
  }
  PlanRequest Request(CollectiveKind kind, bool flat) const {
    PlanRequest q;
    q.topology = &topology;
    q.kind = kind;
    q.hop = {QuantSpec::Int8(), QuantSpec::Int4(Code::kSqrt)};
    q.gather = kind == CollectiveKind::kAllToAll ? q.user : QuantSpec::Int8();
    q.flat = flat;
    return q;
  }
  Topology topology;
  Partition parts;
};

void MakeOnePlan(benchmark::State& state, CollectiveKind kind, bool flat) {
  const int world = static_cast<int>(state.range(0));
  const Setting setting(world);
  const PlanRequest request = setting.Request(kind, flat);
  int rank = 0;
  int64_t bytes = 0;
  for (auto _ : state) {
    const Result<Plan> plan = MakePlan(request, rank);
    if (!plan.ok()) return state.SkipWithError(plan.status().message().c_str());
    bytes = plan->Bytes();
    rank = (rank + 7) % world;
  }
  state.counters["plan_bytes"] = static_cast<double>(bytes);
}

void ProveAllPlans(benchmark::State& state, CollectiveKind kind, bool flat) {
  const Setting setting(static_cast<int>(state.range(0)));
  const PlanRequest request = setting.Request(kind, flat);
  for (auto _ : state) {
    const Result<std::vector<Plan>> plans = MakeAllPlans(request);
    if (!plans.ok()) return state.SkipWithError(plans.status().message().c_str());
    const Proof proof = Check(*plans, request, setting.parts, {.in_place = true});
    if (!proof.ok()) return state.SkipWithError(proof.faults[0].c_str());
  }
}

void PriceOne(benchmark::State& state, CollectiveKind kind, bool flat) {
  const Setting setting(static_cast<int>(state.range(0)));
  const PlanRequest request = setting.Request(kind, flat);
  const Fabric fabric = FabricOf(setting.topology);
  double seconds = 0;
  for (auto _ : state) {
    const Result<Price> price =
        PriceOf(request, setting.parts, {.chunks = 8, .depth = 2, .lanes = 8}, fabric);
    if (!price.ok()) return state.SkipWithError(price.status().message().c_str());
    seconds = price->seconds;
  }
  state.counters["predicted_ms"] = seconds * 1e3;
}

#define ZPP_PLAN_BENCHMARK(function, name, kind, flat) \
  BENCHMARK_CAPTURE(function, name, CollectiveKind::kind, flat)

ZPP_PLAN_BENCHMARK(MakeOnePlan, all_gather, kAllGather, false)
    ->RangeMultiplier(16)
    ->Range(16, 16384);
ZPP_PLAN_BENCHMARK(MakeOnePlan, reduce_scatter, kReduceScatter, false)
    ->RangeMultiplier(16)
    ->Range(16, 16384);
ZPP_PLAN_BENCHMARK(MakeOnePlan, all_reduce, kAllReduce, false)
    ->RangeMultiplier(16)
    ->Range(16, 16384);
ZPP_PLAN_BENCHMARK(MakeOnePlan, all_reduce_flat, kAllReduce, true)
    ->RangeMultiplier(16)
    ->Range(16, 4096);
ZPP_PLAN_BENCHMARK(ProveAllPlans, all_gather, kAllGather, false)
    ->Arg(64)
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond);
ZPP_PLAN_BENCHMARK(ProveAllPlans, all_reduce, kAllReduce, false)
    ->Arg(64)
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond);
ZPP_PLAN_BENCHMARK(PriceOne, all_reduce, kAllReduce, false)
    ->Arg(64)
    ->Arg(1024)
    ->Arg(16384)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace zpp

BENCHMARK_MAIN();
