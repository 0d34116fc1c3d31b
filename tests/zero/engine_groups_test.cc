// Tensor- and pipeline-parallel ranks form data-parallel groups of their own: 8 ranks as TP 2 x PP
// 2 x DP 2. Each holds a quarter of the model; norm and overflow span the quarters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "tests/zero/engine_world.h"
#include "zero/engine.h"

namespace zpp::test {
namespace {

constexpr int kTp = 2, kPp = 2, kDp = 2;

std::vector<ParamSpec> Quarter(int tp, int pp) {
  const std::string at = std::to_string(pp) + "." + std::to_string(tp);
  return {
      {.name = "w" + at, .shape = {48, 64 + 32 * tp}, .unit = 0},
      {.name = "b" + at, .shape = {50 + pp}, .unit = 1},
      // Both tensor-parallel ranks hold it, and only one counts it.
      {.name = "norm" + std::to_string(pp), .shape = {65}, .unit = 1, .counts_in_norm = tp == 0}};
}

std::vector<ParamSpec> Whole() {
  std::vector<ParamSpec> all;
  for (int pp = 0; pp < kPp; ++pp) {
    for (int tp = 0; tp < kTp; ++tp) {
      for (const ParamSpec& p : Quarter(tp, pp)) {
        if (p.counts_in_norm) all.push_back(p);
      }
    }
  }
  return all;
}

// By name, so that a tensor has the same gradient wherever it lives.
void ByName(const std::string& name, int rank, int64_t step, std::vector<float>& grad) {
  const auto key = static_cast<float>(std::hash<std::string>()(name) % 1000);
  for (size_t i = 0; i < grad.size(); ++i) {
    grad[i] = std::sin(key + static_cast<float>(i) * 0.37f + static_cast<float>(step * 3 + rank));
  }
}

class Groups : public testing::TestWithParam<int> {};

TEST_P(Groups, AQuarterPerRankFollowsTheWholeModel) {
  for (const bool compressed : {false, true}) {
    Training whole{.config = PlainConfig(GetParam()), .params = Whole()};
    if (compressed && GetParam() > 0) {
      whole.config.quantized_gradients = whole.config.quantized_weights = true;
      whole.config.zero_pp.enabled = true;
      whole.config.zero_pp.quant_period = 3;
    }
    whole.world = kDp;
    whole.nodes = kDp;
    whole.spoil = [&](int rank, int64_t step, int, int p, std::vector<float>& grad) {
      ByName(whole.params[static_cast<size_t>(p)].name, rank, step, grad);
    };
    const Trained reference = AgreedResult(Train(whole));
    std::map<std::string, std::vector<float>> expected;
    for (size_t p = 0; p < whole.params.size(); ++p) {
      expected[whole.params[p].name] = reference.weights[p];
    }

    Training ranks = whole;
    ranks.world = kTp * kPp * kDp;
    const auto all = OnRanks(ranks, [&](Communicator& world) -> Result<Trained> {
      const int rank = world.rank();
      const int tp = rank % kTp, pp = rank / kTp % kPp, dp = rank / (kTp * kPp);
      ZPP_ASSIGN_OR_RETURN(const auto data_parallel, world.Split(pp * kTp + tp));
      ZPP_ASSIGN_OR_RETURN(const auto model_parallel, world.Split(dp));
      Training mine = whole;
      mine.params = Quarter(tp, pp);
      mine.options.norm_group = model_parallel.get();
      mine.spoil = [&mine](int r, int64_t step, int, int p, std::vector<float>& grad) {
        ByName(mine.params[static_cast<size_t>(p)].name, r, step, grad);
      };
      return TrainRank(*data_parallel, mine);
    });
    for (size_t rank = 0; rank < all.size(); ++rank) {
      ASSERT_TRUE(all[rank].ok()) << rank << ": " << all[rank].status().ToString();
      const auto r = static_cast<int>(rank);
      const std::vector<ParamSpec> params = Quarter(r % kTp, r / kTp % kPp);
      for (size_t p = 0; p < params.size(); ++p) {
        EXPECT_TRUE(SameBits({all[rank]->weights[p]}, {expected[params[p].name]}))
            << "rank " << rank << ", " << params[p].name;
      }
      for (size_t s = 0; s < all[rank]->reports.size(); ++s) {
        EXPECT_EQ(all[rank]->reports[s].grad_norm, reference.reports[s].grad_norm);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, Groups, testing::Values(0, 1, 2, 3));

TEST(Groups, AnOverflowOnOneModelPartSkipsAll) {
  Training ranks{.config = PlainConfig(2), .params = Whole()};
  ranks.world = 8;
  ranks.nodes = 2;
  const auto all = OnRanks(ranks, [&](Communicator& world) -> Result<Trained> {
    const int rank = world.rank();
    ZPP_ASSIGN_OR_RETURN(const auto data_parallel, world.Split(rank % 4));
    ZPP_ASSIGN_OR_RETURN(const auto model_parallel, world.Split(rank / 4));
    Training mine = ranks;
    mine.steps = 3;
    mine.params = Quarter(rank % kTp, rank / kTp % kPp);
    mine.options.norm_group = model_parallel.get();
    mine.spoil = [rank](int, int64_t step, int, int p, std::vector<float>& grad) {
      if (rank == 6 && step == 1 && p == 0) grad[3] = INFINITY;
    };
    return TrainRank(*data_parallel, mine);
  });
  for (const auto& rank : all) {
    ASSERT_TRUE(rank.ok()) << rank.status().ToString();
    EXPECT_FALSE(rank->reports[0].skipped);
    EXPECT_TRUE(rank->reports[1].skipped);
    EXPECT_FALSE(rank->reports[2].skipped);
  }
}

TEST(Engine, RanksThatDifferAreToldSo) {
  Training t{.config = PlainConfig(1), .params = MixedParams()};
  t.world = 3;
  const auto all = OnRanks(t, [&](Communicator& world) -> Result<Trained> {
    Training mine = t;
    if (world.rank() == 1) mine.config.adam.lr = 7;
    return TrainRank(world, mine);
  });
  for (const auto& rank : all) {
    EXPECT_EQ(rank.status().code(), StatusCode::kMismatch);
    EXPECT_THAT(rank.status().message(), testing::HasSubstr("the configuration on rank 1"));
  }
}

TEST(Engine, MisuseIsOneSentence) {
  Training t{.config = PlainConfig(2), .params = MixedParams()};
  const auto all = OnRanks(t, [&](Communicator& world) -> Result<Trained> {
    ZPP_ASSIGN_OR_RETURN(const auto engine, ZeroEngine::Create(world, t.config, t.params));
    const std::vector<float> grad(96, 1.0f);
    const ConstVec vec{DType::kF32, grad.data(), 96};
    const auto said = [](const Status& status, const char* what) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), testing::HasSubstr(what));
    };
    said(engine->AddGradient(99, vec), "there is no parameter 99");
    said(engine->AddGradient(0, vec), "'embed' (64, 32) is given 96 elements");
    said(engine->Gather(3), "there is no unit 3");
    said(engine->Release(-1), "there is no unit -1");
    said(engine->Step().status(), "0 of 1 micro-batches have ended");
    said(engine->LoadWeights({}), "0 tensors for 8 parameters");
    EXPECT_TRUE(engine->AddGradient(2, vec).ok());
    said(engine->AddGradient(2, vec), "'b1' (96) was given a gradient twice");
    EXPECT_TRUE(engine->EndMicroBatch().ok());
    said(engine->EndMicroBatch(), "all 1 micro-batches have ended");
    said(engine->AddGradient(2, vec), "Step() is due");
    return Trained{};
  });
  EXPECT_TRUE(all[0].ok()) << all[0].status().ToString();
}

}  // namespace
}  // namespace zpp::test
