// Google Benchmark suite of the codec: every op x format x type x target, from L1 to DRAM.
//
//   build/release/bench/codec_benchmark --benchmark_filter='encode/int8.*fp32/65536'
// Bytes are those of the uncompressed vector. For ratios to the machine's own memory see `zpp bw
// codec`.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "common/buffer.h"
#include "quant/codec.h"

namespace zpp {
namespace {

struct Setup {
  QuantSpec spec;
  DType dtype;
  std::string target;
};

// A vector, its payload and room for results.
struct Data {
  explicit Data(const Setup& setup, int64_t elems)
      : values(static_cast<size_t>(elems)),
        in(*Buffer::Allocate(static_cast<size_t>(elems * SizeOf(setup.dtype)))),
        payload(*Buffer::Allocate(static_cast<size_t>(PayloadBytes(setup.spec, elems)))),
        recoded(*Buffer::Allocate(payload.size())) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(rng);
    const auto bytes = std::as_bytes(std::span(values));
    Check(Decode(QuantSpec::None(), bytes, {setup.dtype, in.data(), elems}));
    Check(Encode(setup.spec, {setup.dtype, in.data(), elems}, payload.span()));
    Check(CheckPayload(setup.spec, elems, payload.span()));
  }

  static void Check(const Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "codec_benchmark: %s\n", status.ToString().c_str());
    std::abort();
  }

  std::vector<float> values;
  Buffer in, payload, recoded;
};

template <class Fn>
void Run(benchmark::State& state, const Setup& setup, Fn fn) {
  const int64_t elems = state.range(0);
  Data data(setup, elems);
  Data::Check(SetCodecTarget(setup.target));
  for (auto _ : state) {
    Data::Check(fn(data, elems));
    benchmark::ClobberMemory();
  }
  Data::Check(SetCodecTarget(""));
  state.SetBytesProcessed(state.iterations() * elems * SizeOf(setup.dtype));
}

void Register(const char* op, const Setup& setup, const std::vector<int64_t>& counts,
              const std::function<Status(const Setup&, Data&, int64_t)>& fn) {
  const std::string name = std::string(op) + "/" + ToString(setup.spec) + "/" +
                           std::string(DTypeName(setup.dtype)) + "/" + setup.target;
  auto* registered = benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    Run(state, setup, [&](Data& data, int64_t elems) { return fn(setup, data, elems); });
  });
  for (int64_t count : counts) registered->Arg(count);
}

Status EncodeOnce(const Setup& setup, Data& data, int64_t elems) {
  return Encode(setup.spec, {setup.dtype, data.in.data(), elems}, data.payload.span());
}

Status DecodeOnce(const Setup& setup, Data& data, int64_t elems) {
  return Decode(setup.spec, data.payload.span(), {setup.dtype, data.in.data(), elems});
}

Status AccumulateOnce(const Setup& setup, Data& data, int64_t) {
  return DecodeAccumulate(setup.spec, data.payload.span(), data.values);
}

Status ReduceOnce(const Setup& setup, Data& data, int64_t elems) {
  const Operand operand{setup.spec, data.payload.span()};
  const std::vector<Operand> operands(4, operand);
  return ReduceRecode(
      {.in = operands, .elems = elems, .divisor = 1, .out_spec = setup.spec, .noise = {}},
      data.recoded.span());
}

void RegisterAll() {
  const std::vector<int64_t> counts = {2, 4096, 64 << 10, 16 << 20};
  for (std::string_view target : CodecTargets()) {
    for (const char* text :
         {"int8", "int4", "int4/sqrt", "int8/stochastic", "int4/sqrt/stochastic"}) {
      for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        const Setup setup{*ParseQuantSpec(text), dtype, std::string(target)};
        Register("encode", setup, counts, EncodeOnce);
        if (setup.spec.rounding == Rounding::kStochastic) continue;
        Register("decode", setup, counts, DecodeOnce);
        if (dtype != DType::kF32) continue;
        Register("decode_accumulate", setup, counts, AccumulateOnce);
        Register("reduce_recode", setup, counts, ReduceOnce);
      }
    }
  }
}

}  // namespace
}  // namespace zpp

int main(int argc, char** argv) {
#if !defined(NDEBUG)
  std::fprintf(stderr, "codec_benchmark: this is a Debug build, its figures would mean nothing\n");
  return 2;
#endif
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  zpp::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
