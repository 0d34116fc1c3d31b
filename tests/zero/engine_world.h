// A small training whose gradients depend on the weights, the rank, the micro-batch and the
// element: what an engine does wrong shows in the bits of the weights.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "zero/engine.h"

namespace zpp::test {

struct Training {
  ZeroConfig config;
  std::vector<ParamSpec> params;
  EngineOptions options = {};
  int world = 1;
  int nodes = 1;
  int64_t chunk_bytes = 0;
  int steps = 5;
  // Changes a micro-batch's gradient before it is handed over: (rank, step, micro, param, grad).
  std::function<void(int, int64_t, int, int, std::vector<float>&)> spoil = {};
  // Called after each step on every rank, e.g. to save.
  std::function<Status(ZeroEngine&, const StepReport&)> after_step = {};
  std::string resume_from = {};
  // Parameters that get no gradient, at every step.
  std::vector<int> silent = {};
};

struct Trained {
  std::vector<std::vector<float>> weights;   // masters, per parameter
  std::vector<std::vector<float>> replicas;  // what this rank last computed with, as fp32
  std::vector<StepReport> reports;
  nlohmann::json audit;
  MemoryEstimate memory;
};

// An unlike mix: matrices of several row lengths, biases, an empty tensor, one element, three.
std::vector<ParamSpec> MixedParams();
// fp32, AdamW, no compression, small buckets.
ZeroConfig PlainConfig(int stage);

// Every rank's result, ranks as threads; a failed rank has a status instead.
std::vector<Result<Trained>> Train(const Training& training);
// The same with a body of the caller's over each rank's communicator.
using RankTraining = std::function<Result<Trained>(Communicator&)>;
std::vector<Result<Trained>> OnRanks(const Training& training, const RankTraining& body);
// One rank's share of it over a communicator that is there already: these three.
Result<Trained> TrainRank(Communicator& comm, const Training& training);
// With the initial weights.
Result<std::unique_ptr<ZeroEngine>> MakeEngine(Communicator& comm, const Training& training);
// Until engine.steps() is t.steps.
Status TrainOn(ZeroEngine& engine, const Training& t, int rank, Trained* out);
Status ReadAll(ZeroEngine& engine, const Training& t, Trained* out);

Status LoadInitialWeights(ZeroEngine& engine, const Training& t);
// Forward and backward of all units; stops, if asked to, once `stop_after` gradients were added.
Status MicroBatch(ZeroEngine& engine, const Training& t, int rank, int micro, Trained* out,
                  int stop_after = -1);

// All ranks hold the same weights to the bit; the first rank's.
Trained AgreedResult(const std::vector<Result<Trained>>& all);
// Bits, so that a NaN equals itself.
bool SameBits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b);

}  // namespace zpp::test
