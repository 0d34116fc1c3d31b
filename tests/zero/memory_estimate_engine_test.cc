// The estimate against what engines hold after real steps: states to 3 %, the rest never above it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/collectives/collective_cases.h"
#include "tests/harness/ranks.h"
#include "zero/engine.h"

namespace zpp::test {
namespace {

std::vector<ParamSpec> Params() {
  std::vector<ParamSpec> params;
  for (int unit = 0; unit < 3; ++unit) {
    const std::string name = "layer" + std::to_string(unit);
    params.push_back({.name = name + ".weight", .shape = {256, 512}, .unit = unit});
    params.push_back({.name = name + ".bias", .shape = {256}, .unit = unit});
  }
  params.push_back({.name = "frozen", .shape = {64, 64}, .unit = 2, .trainable = false});
  return params;
}

Status RunSteps(ZeroEngine& engine, int steps) {
  const auto params = engine.params();
  for (int i = 0; i < steps * engine.config().accumulation_steps; ++i) {
    for (int unit = 0; unit < 3; ++unit) {
      ZPP_RETURN_IF_ERROR(engine.Gather(unit));
      ZPP_RETURN_IF_ERROR(engine.Release(unit));
    }
    for (int unit = 2; unit >= 0; --unit) {
      ZPP_RETURN_IF_ERROR(engine.Gather(unit));
      for (size_t p = 0; p < params.size(); ++p) {
        if (params[p].unit != unit || !params[p].trainable) continue;
        const std::vector<float> grad(static_cast<size_t>(params[p].elems()), 1e-3f);
        ZPP_RETURN_IF_ERROR(
            engine.AddGradient(static_cast<int>(p), {DType::kF32, grad.data(), params[p].elems()}));
      }
      ZPP_RETURN_IF_ERROR(engine.Release(unit));
    }
    ZPP_RETURN_IF_ERROR(engine.EndMicroBatch());
    if ((i + 1) % engine.config().accumulation_steps == 0) {
      ZPP_RETURN_IF_ERROR(engine.Step().status());
    }
  }
  return {};
}

// Within 3 %, and a few cache lines of padding.
bool Near(int64_t held, int64_t estimate) {
  return std::abs(held - estimate) <= std::max<int64_t>(estimate * 3 / 100, 4096);
}

struct Case {
  std::string json;
  Topology topology;
};

Result<std::string> Compare(Communicator& comm, const ZeroConfig& config, const Case& c) {
  ZPP_ASSIGN_OR_RETURN(auto engine, ZeroEngine::Create(comm, config, Params()));
  std::vector<std::vector<float>> values;
  std::vector<ConstVec> weights;
  for (const ParamSpec& param : engine->params()) {
    values.emplace_back(static_cast<size_t>(param.elems()), 0.5f);
    weights.push_back({DType::kF32, values.back().data(), param.elems()});
  }
  ZPP_RETURN_IF_ERROR(engine->LoadWeights(weights));
  ZPP_RETURN_IF_ERROR(RunSteps(*engine, 3));
  const auto node = static_cast<int>(c.topology.NodeGroup(comm.rank()).size());
  const MemoryEstimate want =
      EstimateMemory(config, ModelSizeOf(MakeShardMap(engine->params(), config, comm.world())),
                     {.world = comm.world(), .node_ranks = node});
  const MemoryEstimate held = engine->memory();
  const std::string figures = c.json + "\nestimate:\n" + want.ToText() + "held:\n" + held.ToText();
  ZPP_REQUIRE_MSG(Near(held.weights_bytes, want.weights_bytes), figures);
  ZPP_REQUIRE_MSG(Near(held.master_bytes, want.master_bytes), figures);
  ZPP_REQUIRE_MSG(Near(held.moments_bytes, want.moments_bytes), figures);
  ZPP_REQUIRE_MSG(Near(held.secondary_bytes, want.secondary_bytes), figures);
  ZPP_REQUIRE_MSG(Near(held.residuals_bytes, want.residuals_bytes), figures);
  ZPP_REQUIRE_MSG(held.gathered_bytes <= want.gathered_bytes, figures);
  ZPP_REQUIRE_MSG(held.gradients_bytes <= want.gradients_bytes + 4096, figures);
  ZPP_REQUIRE_MSG(held.staging_bytes <= want.staging_bytes + 4096, figures);
  ZPP_REQUIRE_MSG(held.offloaded == want.offloaded, figures);
  ZPP_REQUIRE_MSG(want.total_bytes() < 2 * held.total_bytes(), figures);
  return std::string();
}

TEST(MemoryEstimateOfEngines, HoldsForEveryStage) {
  const std::vector<int> even = {2, 2};
  const Topology nodes = *Topology::Nodes(even);
  const std::string pp = R"("zero_pp": {"enabled": true, "quant_period": 2})";
  std::vector<Case> cases;
  for (const std::string stage : {"0", "1", "2", "3"}) {
    const std::string zero = R"("zero_optimization": {"stage": )" + stage +
                             R"(, "stage3_param_persistence_threshold": 300})";
    cases.push_back({zero, Topology::Flat(1)});
    cases.push_back({zero, nodes});
    cases.push_back({zero + R"(, "bf16": {"enabled": true}, "gradient_accumulation_steps": 2)",
                     Topology::Flat(3)});
    if (stage == "0") continue;
    cases.push_back({zero + R"(, "bf16": {"enabled": true}, )" + pp, nodes});
    cases.push_back({zero + ", " + pp, Topology::Flat(2)});
  }
  cases.push_back({R"("zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2,
                       "offload_optimizer": {"device": "cpu"},
                       "stage3_param_persistence_threshold": 0},
                      "bf16": {"enabled": true},
                      "optimizer": {"type": "SGD", "params": {"momentum": 0.5}},
                      "zero_pp": {"enabled": true, "error_feedback": "both", "residual": "int8"})",
                   nodes});
  for (const Case& c : cases) {
    const auto config = ParseZeroConfig(R"({"train_micro_batch_size_per_gpu": 1, )" + c.json + "}",
                                        c.topology.world());
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    const auto ran = RunWorld({.topology = c.topology},
                              [&](Communicator& comm) { return Compare(comm, *config, c); });
    EXPECT_TRUE(ran.ok()) << ran.status().ToString();
  }
}

}  // namespace
}  // namespace zpp::test
