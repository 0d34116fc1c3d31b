#include "tests/zero/engine_world.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "collectives/transport/in_process.h"
#include "zero/internal/plain_math.h"

namespace zpp::test {
namespace {

// A uniform number in -1..1 from what it is asked for.
float Noise(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<float>(static_cast<int64_t>((x ^ (x >> 31)) >> 40) - (1 << 23)) * 0x1p-23f;
}

std::vector<std::vector<float>> InitialWeights(const std::vector<ParamSpec>& params) {
  std::vector<std::vector<float>> weights;
  for (size_t p = 0; p < params.size(); ++p) {
    std::vector<float> w(static_cast<size_t>(params[p].elems()));
    const uint64_t key = std::hash<std::string>()(params[p].name);
    for (size_t i = 0; i < w.size(); ++i) w[i] = 0.1f * Noise(key, i);
    weights.push_back(std::move(w));
  }
  return weights;
}

// Of 0.5 * (w - target)^2 with a target of the rank's own, and a few elements of a huge range.
std::vector<float> GradientOf(const std::vector<float>& w, int rank, int64_t step, int micro,
                              int param) {
  std::vector<float> grad(w.size());
  const uint64_t key = static_cast<uint64_t>(rank) * 1000003u + static_cast<uint64_t>(step) * 131u +
                       static_cast<uint64_t>(micro) * 17u + static_cast<uint64_t>(param) * 7919u;
  for (size_t i = 0; i < w.size(); ++i) {
    grad[i] = w[i] - 0.5f * Noise(key, i);
    if (i % 97 == 5) grad[i] *= 64;
  }
  return grad;
}

std::vector<float> AsFloats(const ConstVec& v) {
  std::vector<float> out(static_cast<size_t>(v.elems));
  EXPECT_TRUE(internal::Convert(v, internal::VecOf(std::span<float>(out))).ok());
  return out;
}

std::vector<int> ParamsOfUnit(const std::vector<ParamSpec>& params, int unit) {
  std::vector<int> list;
  for (size_t p = 0; p < params.size(); ++p) {
    if (params[p].unit == unit) list.push_back(static_cast<int>(p));
  }
  return list;
}

int Units(const std::vector<ParamSpec>& params) {
  int units = 0;
  for (const ParamSpec& p : params) units = std::max(units, p.unit + 1);
  return units;
}

// As even as they come; the first nodes are the larger ones.
Topology NodesOf(int world, int nodes) {
  std::vector<int> sizes(static_cast<size_t>(nodes), world / nodes);
  for (int i = 0; i < world % nodes; ++i) ++sizes[static_cast<size_t>(i)];
  auto topology = Topology::Nodes(sizes);
  EXPECT_TRUE(topology.ok()) << topology.status().ToString();
  return *topology;
}

}  // namespace

std::vector<ParamSpec> MixedParams() {
  return {{.name = "embed", .shape = {64, 32}, .unit = 0},
          {.name = "w1", .shape = {96, 128}, .unit = 1},
          {.name = "b1", .shape = {96}, .unit = 1},
          {.name = "none", .shape = {0, 7}, .unit = 1},
          {.name = "scalar", .shape = {}, .unit = 1},
          {.name = "three", .shape = {3}, .unit = 2},
          {.name = "w2", .shape = {40, 100}, .unit = 2},
          {.name = "w3", .shape = {33, 256}, .unit = 2}};
}

ZeroConfig PlainConfig(int stage) {
  ZeroConfig config;
  config.stage = stage;
  config.micro_batch_size = 1;
  config.gradient_clipping = 1.0;
  config.overlap_comm = true;
  config.adam.lr = 1e-2;
  config.adam.weight_decay = 0.01;
  config.reduce_bucket_elems = 5000;
  config.persistence_threshold_elems = 100;
  config.zero_pp.quant_period = 0;
  return config;
}

Status MicroBatch(ZeroEngine& engine, const Training& t, int rank, int micro, Trained* out,
                  int stop_after) {
  const int64_t step = engine.steps();
  const int units = Units(t.params);
  out->replicas.resize(t.params.size());
  int added = 0;
  for (int u = 0; u < units; ++u) {
    ZPP_RETURN_IF_ERROR(engine.Gather(u));
    for (const int p : ParamsOfUnit(t.params, u)) {
      out->replicas[static_cast<size_t>(p)] = AsFloats(engine.Weights(p));
    }
    ZPP_RETURN_IF_ERROR(engine.Release(u));
  }
  for (int u = units - 1; u >= 0; --u) {
    ZPP_RETURN_IF_ERROR(engine.Gather(u));
    const std::vector<int> list = ParamsOfUnit(t.params, u);
    for (auto p = list.rbegin(); p != list.rend(); ++p) {
      const auto index = static_cast<size_t>(*p);
      if (!t.params[index].trainable || added == stop_after) continue;
      if (std::find(t.silent.begin(), t.silent.end(), *p) != t.silent.end()) continue;
      const std::vector<float> w = AsFloats(engine.Weights(*p));
      if (!SameBits({w}, {out->replicas[index]})) {
        return Internal("backward sees other weights than forward in " + t.params[index].name);
      }
      std::vector<float> grad = GradientOf(w, rank, step, micro, *p);
      for (float& g : grad) g *= static_cast<float>(engine.loss_scale());
      if (t.spoil) t.spoil(rank, step, micro, *p, grad);
      ZPP_RETURN_IF_ERROR(engine.AddGradient(*p, internal::VecOf(std::span<const float>(grad))));
      ++added;
    }
    ZPP_RETURN_IF_ERROR(engine.Release(u));
  }
  return added == stop_after ? Status() : engine.EndMicroBatch();
}

Status LoadInitialWeights(ZeroEngine& engine, const Training& t) {
  const auto initial = InitialWeights(t.params);
  std::vector<ConstVec> values;
  for (const auto& w : initial) values.push_back(internal::VecOf(std::span<const float>(w)));
  return engine.LoadWeights(values);
}

Result<std::unique_ptr<ZeroEngine>> MakeEngine(Communicator& comm, const Training& t) {
  ZPP_ASSIGN_OR_RETURN(auto engine, ZeroEngine::Create(comm, t.config, t.params, t.options));
  ZPP_RETURN_IF_ERROR(LoadInitialWeights(*engine, t));
  return engine;
}

Status TrainOn(ZeroEngine& engine, const Training& t, int rank, Trained* out) {
  while (engine.steps() < t.steps) {
    for (int micro = 0; micro < t.config.accumulation_steps; ++micro) {
      ZPP_RETURN_IF_ERROR(MicroBatch(engine, t, rank, micro, out));
    }
    ZPP_ASSIGN_OR_RETURN(StepReport report, engine.Step());
    if (t.after_step) ZPP_RETURN_IF_ERROR(t.after_step(engine, report));
    out->reports.push_back(std::move(report));
  }
  return {};
}

Status ReadAll(ZeroEngine& engine, const Training& t, Trained* out) {
  out->replicas.resize(t.params.size());
  out->weights.clear();
  for (size_t p = 0; p < t.params.size(); ++p) {
    std::vector<float> w(static_cast<size_t>(t.params[p].elems()));
    ZPP_RETURN_IF_ERROR(engine.ReadWeights(static_cast<int>(p), w));
    out->weights.push_back(std::move(w));
  }
  // What the last step left for the next forward pass.
  for (int u = 0; u < Units(t.params); ++u) {
    ZPP_RETURN_IF_ERROR(engine.Gather(u));
    for (const int p : ParamsOfUnit(t.params, u)) {
      out->replicas[static_cast<size_t>(p)] = AsFloats(engine.Weights(p));
    }
    ZPP_RETURN_IF_ERROR(engine.Release(u));
  }
  out->audit = engine.audit().ToJson();
  out->memory = engine.memory();
  return {};
}

Result<Trained> TrainRank(Communicator& comm, const Training& t) {
  ZPP_ASSIGN_OR_RETURN(const auto engine, MakeEngine(comm, t));
  if (!t.resume_from.empty()) {
    ZPP_RETURN_IF_ERROR(engine->Load(t.resume_from).status());
  }
  Trained out;
  ZPP_RETURN_IF_ERROR(TrainOn(*engine, t, comm.rank(), &out));
  ZPP_RETURN_IF_ERROR(ReadAll(*engine, t, &out));
  return out;
}

std::vector<Result<Trained>> OnRanks(const Training& training, const RankTraining& body) {
  InProcessWorld net = MakeInProcessWorld(training.world);
  const Topology topology = NodesOf(training.world, training.nodes);
  std::vector<Result<Trained>> results(static_cast<size_t>(training.world),
                                       Result<Trained>(Internal("did not run")));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < training.world; ++rank) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<size_t>(rank);
      auto comm =
          Communicator::Create(std::move(net.transports[index]), net.controls[index], topology,
                               {.timeout_s = 60, .chunk_bytes = training.chunk_bytes});
      if (!comm.ok()) {
        results[index] = comm.status();
        return;
      }
      results[index] = body(**comm);
      // Only what the others cannot know: they return errors of their own otherwise.
      if (results[index].status().code() == StatusCode::kInternal) {
        (*comm)->Abort(results[index].status());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::vector<Result<Trained>> Train(const Training& training) {
  return OnRanks(training, [&](Communicator& comm) { return TrainRank(comm, training); });
}

bool SameBits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    if (!a[i].empty() && std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

Trained AgreedResult(const std::vector<Result<Trained>>& all) {
  for (size_t rank = 0; rank < all.size(); ++rank) {
    EXPECT_TRUE(all[rank].ok()) << "rank " << rank << ": " << all[rank].status().ToString();
    if (!all[rank].ok()) return {};
    EXPECT_TRUE(SameBits(all[rank]->weights, all[0]->weights)) << "rank " << rank;
    EXPECT_TRUE(SameBits(all[rank]->replicas, all[0]->replicas)) << "rank " << rank;
  }
  return *all[0];
}

}  // namespace zpp::test
