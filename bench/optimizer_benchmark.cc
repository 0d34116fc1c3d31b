// Google Benchmark suite of the optimizer step, one core, against its roof: what the machine takes
// to move the same bytes when nothing is computed.
//
//   build/release/bench/optimizer_benchmark --benchmark_filter='adamw/bf16'
//
// roof_s = updating in place each array that is updated + reading each one that is read + filling
// the weights that are written, each at the rate that it reaches by itself, measured right before
// every step, on the same huge pages. of_roof = median of the roofs / median of the steps.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "cli/median.h"
#include "cli/yardsticks.h"
#include "zero/exact_sum.h"
#include "zero/host_arena.h"
#include "zero/optimizer.h"

namespace zpp {
namespace {

enum class Optimizer : uint8_t { kAdamW, kSgd, kSgdMomentum };

struct Setup {
  Optimizer optimizer;
  bool has_weights;
  DType weights;
};

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "optimizer_benchmark: %s\n", status.ToString().c_str());
  std::abort();
}

template <class T>
T Need(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}

template <class Fn>
double Seconds(Fn fn) {
  const auto start = std::chrono::steady_clock::now();
  fn();
  benchmark::ClobberMemory();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// All arrays of a shard, in one arena of huge pages.
class Shard {
 public:
  Shard(const Setup& setup, int64_t elems) : setup_(setup) {
    const size_t floats_bytes = HostArena::PieceBytesOfFloats(elems);
    arena_ = Need(HostArena::Create(HostMemory::kHugePages, 5 * floats_bytes));
    for (auto* floats : {&master_, &m_, &v_, &grad_}) {
      *floats = Need(arena_.AllocateFloats(elems));
    }
    const size_t weights_bytes = static_cast<size_t>(elems * SizeOf(setup.weights));
    weights_ = Need(arena_.Allocate(setup.has_weights ? weights_bytes : 0));
    std::mt19937 rng(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& p : master_) p = uniform(rng);
    for (float& g : grad_) g = 0.01f * uniform(rng);
  }

  // Elements [at, at + count), one more step.
  void Step(int64_t step, size_t at, size_t count) {
    const auto part = [&](std::span<float> floats) { return floats.subspan(at, count); };
    const size_t elem_bytes = static_cast<size_t>(SizeOf(setup_.weights));
    Vec weights{setup_.weights, weights_.data() + at * elem_bytes, static_cast<int64_t>(count)};
    if (!setup_.has_weights) weights = {};
    if (setup_.optimizer == Optimizer::kAdamW) {
      const AdamConfig config{.weight_decay = 0.01};
      return Check(AdamStep(config, step, 0.5f,
                            {.master = part(master_),
                             .m = part(m_),
                             .v = part(v_),
                             .grad = part(grad_),
                             .weights_out = weights}));
    }
    const bool momentum = setup_.optimizer == Optimizer::kSgdMomentum;
    const SgdConfig config{.momentum = momentum ? 0.9 : 0};
    Check(SgdStep(config, step, 0.5f,
                  {.master = part(master_),
                   .momentum = momentum ? part(m_) : std::span<float>(),
                   .grad = part(grad_),
                   .weights_out = weights}));
  }

  void StepAll(int64_t step) { Step(step, 0, master_.size()); }

  // What the same bytes take when nothing is computed.
  double Roof_s() {
    const double update_s = Seconds([&] { UpdateAll(master_); });
    const double read_s = Seconds([&] { benchmark::DoNotOptimize(ReadAll(std::as_bytes(grad_))); });
    // Weights that are overwritten before every step: both fills spare them.
    const double fill_s = std::min(Seconds([&] { FillAll(weights_, false); }),
                                   Seconds([&] { FillAll(weights_, true); }));
    const int updates = setup_.optimizer == Optimizer::kAdamW ? 3 : 1;
    const int momentum = setup_.optimizer == Optimizer::kSgdMomentum ? 1 : 0;
    return (updates + momentum) * update_s + read_s + fill_s;
  }

  // The last elements, stepped again by themselves, must give the same bits as within the whole.
  void Verify(int64_t step) {
    const size_t count = std::min<size_t>(1001, master_.size());
    const size_t at = master_.size() - count;
    const auto save = [&] {
      std::vector<float> all;
      for (const auto& floats : {master_, m_, v_}) {
        all.insert(all.end(), floats.begin() + static_cast<int64_t>(at), floats.end());
      }
      return all;
    };
    const std::vector<float> before = save();
    StepAll(step);
    const std::vector<float> whole = save();
    for (size_t i = 0; i < count; ++i) {
      master_[at + i] = before[i];
      m_[at + i] = before[count + i];
      v_[at + i] = before[2 * count + i];
    }
    Step(step, at, count);
    if (whole == before || save() != whole) Check(Internal("a part's step differs"));
  }

  const HostArena& arena() const { return arena_; }

 private:
  Setup setup_;
  HostArena arena_;
  std::span<float> master_, m_, v_, grad_;
  std::span<std::byte> weights_;
};

void Run(benchmark::State& state, const Setup& setup) {
  Shard shard(setup, state.range(0));
  int64_t step = 1;
  shard.StepAll(step);
  shard.Verify(++step);
  std::vector<double> roofs, steps;
  for (auto _ : state) {
    roofs.push_back(shard.Roof_s());
    ++step;
    steps.push_back(Seconds([&] { shard.StepAll(step); }));
    state.SetIterationTime(steps.back());
  }
  const HostMemoryUsage usage = shard.arena().Usage();
  state.counters["of_roof"] = cli::Median(roofs) / cli::Median(steps);
  state.counters["params_per_s"] = static_cast<double>(state.range(0)) / cli::Median(steps);
  state.counters["huge_pages"] =
      static_cast<double>(usage.huge_bytes) / static_cast<double>(usage.capacity_bytes);
}

void RunExactSum(benchmark::State& state) {
  std::vector<float> values(static_cast<size_t>(state.range(0)));
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (float& x : values) x = normal(rng);
  ExactSum whole, parts;
  whole.AddSquares(values);
  parts.AddSquares(std::span(values).subspan(values.size() / 3));
  parts.AddSquares(std::span(values).first(values.size() / 3));
  if (parts != whole) Check(Internal("the sum depends on the order"));
  for (auto _ : state) {
    ExactSum sum;
    sum.AddSquares(values);
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void Register(const std::string& name, const Setup& setup) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [setup](benchmark::State& state) { Run(state, setup); })
      ->Arg(64 << 20)
      ->UseManualTime()
      ->Iterations(9)
      ->Unit(benchmark::kMillisecond);
}

void RegisterAll() {
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const std::string suffix = "/" + std::string(DTypeName(dtype));
    Register("adamw" + suffix, {Optimizer::kAdamW, true, dtype});
  }
  Register("adamw/none", {Optimizer::kAdamW, false, DType::kF32});
  Register("sgd/bf16", {Optimizer::kSgd, true, DType::kBF16});
  Register("sgd_momentum/bf16", {Optimizer::kSgdMomentum, true, DType::kBF16});
  benchmark::RegisterBenchmark("exact_sum", RunExactSum)->Arg(1000)->Arg(64 << 10)->Arg(64 << 20);
}

}  // namespace
}  // namespace zpp

int main(int argc, char** argv) {
#if !defined(NDEBUG)
  std::fprintf(stderr,
               "optimizer_benchmark: this is a Debug build, its figures would mean nothing\n");
  return 2;
#endif
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  zpp::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
