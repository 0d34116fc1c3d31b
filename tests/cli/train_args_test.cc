// Flags of `zpp train`: what they mean, and one sentence about what is wrong.
#include "cli/train_args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/train_config.h"

namespace zpp::cli {
namespace {

using testing::HasSubstr;

std::string WhyNot(const TrainFlags& flags, const LaunchEnv* launched = nullptr) {
  const Result<TrainArgs> args = ResolveTrain(flags, launched);
  EXPECT_TRUE(args.ok() || args.status().code() == StatusCode::kInvalidArgument ||
              args.status().code() == StatusCode::kNotFound)
      << args.status().ToString();
  return args.ok() ? "" : args.status().message();
}

TrainFlags With(void (*change)(TrainFlags&)) {
  TrainFlags flags;
  change(flags);
  return flags;
}

TEST(TrainArgs, DefaultsAreDocumentedOnes) {
  const Result<TrainArgs> args = ResolveTrain({}, nullptr);
  ASSERT_TRUE(args.ok()) << args.status().ToString();
  EXPECT_EQ(args->ranks, 4);
  EXPECT_EQ(args->nodes, 2);
  EXPECT_EQ(args->shape, lm::LmShape{});
  EXPECT_EQ(args->config.stage, 3);
  EXPECT_EQ(args->config.train_batch_size, 512);
  EXPECT_EQ(args->config.compute, DType::kF32);
  EXPECT_TRUE(Compresses(args->config));
  EXPECT_DOUBLE_EQ(args->rate.peak, 3e-3);
  EXPECT_EQ(args->rate.warmup_steps, 50);
  EXPECT_FALSE(args->baseline.has_value());
  EXPECT_THAT(args->data, HasSubstr("/c++/"));
}

TEST(TrainArgs, TheLaunchersRanksAreTaken) {
  LaunchEnv launched;
  launched.world = 6;
  const Result<TrainArgs> args = ResolveTrain({}, &launched);
  ASSERT_TRUE(args.ok()) << args.status().ToString();
  EXPECT_EQ(args->ranks, 0);
  EXPECT_EQ(args->nodes, 0);
  EXPECT_EQ(args->world, 6);
  EXPECT_EQ(args->config.train_batch_size, 510);  // the next below 512 that six can share
}

TEST(TrainArgs, EveryStageHasADefaultConfiguration) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const char* compute : {"fp32", "fp16", "bf16"}) {
      TrainFlags flags;
      flags.stage = stage;
      flags.compute = compute;
      flags.batch = 64;
      flags.accumulation = 2;
      const Result<TrainArgs> args = ResolveTrain(flags, nullptr);
      ASSERT_TRUE(args.ok()) << args.status().ToString();
      EXPECT_EQ(args->config.stage, stage);
      EXPECT_EQ(DTypeName(args->config.compute), compute);
      EXPECT_EQ(args->config.micro_batch_size, 8);
      EXPECT_EQ(Compresses(args->config), stage > 0);
    }
  }
}

TEST(TrainArgs, BadValuesAreNamed) {
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.ranks = 0; })), HasSubstr("--ranks"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.ranks = 257; })), HasSubstr("--ranks"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.nodes = 5; })), HasSubstr("--nodes"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.inter_gbits = -1; })), HasSubstr("--inter-gbits"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.timeout_s = NAN; })), HasSubstr("--timeout"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.threads = 0; })), HasSubstr("--threads"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.model = "gpt"; })), HasSubstr("'gpt'"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.hidden = 0; })), HasSubstr("--hidden"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.layout = "sideways"; })), HasSubstr("--layout"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.stage = 4; })), HasSubstr("--stage"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.batch = 6; })), HasSubstr("--batch 6"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.accumulation = 0; })), HasSubstr("--accumulation"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.compute = "fp8"; })), HasSubstr("--compute"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.steps = 0; })), HasSubstr("--steps"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.schedule = "steps"; })), HasSubstr("--schedule"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.learning_rate = INFINITY; })),
              HasSubstr("--learning-rate"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.warmup = -1; })), HasSubstr("--warmup"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.save_every = 5; })), HasSubstr("--save"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.audit_every = -1; })), HasSubstr("--audit"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.audit_update = true; })), HasSubstr("--audit 1"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) { f.baseline = "x"; })), HasSubstr("--compare"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) {
                f.compare = true;
                f.save = "x";
              })),
              HasSubstr("--save"));
  EXPECT_THAT(WhyNot(With([](TrainFlags& f) {
                f.compare = true;
                f.stage = 0;
              })),
              HasSubstr("compresses nothing"));
}

class TrainConfigFile : public testing::Test {
 protected:
  TrainConfigFile() : path_(testing::TempDir() + "train_args" + std::to_string(getpid())) {}
  ~TrainConfigFile() override { std::filesystem::remove(path_); }
  TrainFlags Flags(const std::string& text) const {
    std::ofstream(path_) << text;
    TrainFlags flags;
    flags.config = path_;
    return flags;
  }
  std::string path_;
};

TEST_F(TrainConfigFile, TheFilesWordsAreTaken) {
  const Result<TrainArgs> args = ResolveTrain(
      Flags(R"({"train_batch_size": 32, "optimizer": {"type": "SGD", "params": {"lr": 0.5}},
                "zero_optimization": {"stage": 1}})"),
      nullptr);
  ASSERT_TRUE(args.ok()) << args.status().ToString();
  EXPECT_EQ(args->config.stage, 1);
  EXPECT_DOUBLE_EQ(args->rate.peak, 0.5);
}

TEST_F(TrainConfigFile, WhatIsWrongInItIsNamed) {
  EXPECT_THAT(WhyNot(Flags(R"({"train_batch_siez": 32})")), HasSubstr("train_batch_size"));
  EXPECT_THAT(WhyNot(Flags(R"({"train_batch_size": 33})")), HasSubstr("train_batch_size"));
  EXPECT_THAT(WhyNot(Flags(R"({"train_batch_size": 32, "zero_optimization": {"stage": 4}})")),
              HasSubstr("stage"));
  TrainFlags twice = Flags(R"({"train_batch_size": 32})");
  twice.stage = 2;
  EXPECT_THAT(WhyNot(twice), HasSubstr("--stage and --config"));
  TrainFlags nowhere;
  nowhere.config = path_ + ".none";
  EXPECT_THAT(WhyNot(nowhere), HasSubstr(".none"));
}

TEST(TrainArgs, WiderLayersStartWithASmallerLearningRate) {
  EXPECT_DOUBLE_EQ(ResolveTrain(With([](TrainFlags& f) { f.hidden = 64; }), nullptr)->rate.peak,
                   3e-3);
  EXPECT_DOUBLE_EQ(ResolveTrain(With([](TrainFlags& f) { f.model = "20m"; }), nullptr)->rate.peak,
                   7.5e-4);
  EXPECT_DOUBLE_EQ(ResolveTrain(With([](TrainFlags& f) {
                                  f.model = "20m";
                                  f.learning_rate = 0.01;
                                }),
                                nullptr)
                       ->rate.peak,
                   0.01);
}

TEST(TrainArgs, TheBaselineOfACompareIsTheSameUncompressed) {
  TrainFlags flags;
  flags.compare = true;
  const Result<TrainArgs> args = ResolveTrain(flags, nullptr);
  ASSERT_TRUE(args.ok()) << args.status().ToString();
  ASSERT_TRUE(args->baseline.has_value());
  EXPECT_FALSE(Compresses(*args->baseline));
  EXPECT_EQ(args->baseline->stage, args->config.stage);
  EXPECT_EQ(args->baseline->train_batch_size, args->config.train_batch_size);
  EXPECT_EQ(args->baseline->adam, args->config.adam);
}

TEST(TrainArgs, RanksWithOtherFlagsHaveAnotherDigest) {
  const uint64_t plain = DigestOf(*ResolveTrain({}, nullptr));
  EXPECT_EQ(plain, DigestOf(*ResolveTrain({}, nullptr)));
  for (const auto change :
       {+[](TrainFlags& f) { f.steps = 601; }, +[](TrainFlags& f) { f.seed = 2; },
        +[](TrainFlags& f) { f.hidden = 513; }, +[](TrainFlags& f) { f.layout = "in_out"; },
        +[](TrainFlags& f) { f.stage = 2; }, +[](TrainFlags& f) { f.save = "x"; },
        +[](TrainFlags& f) { f.audit_every = 5; }, +[](TrainFlags& f) { f.learning_rate = 0.1; }}) {
    EXPECT_NE(plain, DigestOf(*ResolveTrain(With(change), nullptr)));
  }
}

TEST(TrainLearningRate, WarmsUpThenFallsToATwentieth) {
  const LearningRate rate{.peak = 1, .warmup_steps = 50, .steps = 600, .cosine = true};
  EXPECT_DOUBLE_EQ(rate.At(0), 0.02);
  EXPECT_DOUBLE_EQ(rate.At(49), 1);
  EXPECT_DOUBLE_EQ(rate.At(50), 1);
  EXPECT_NEAR(rate.At(325), 0.525, 1e-12);
  EXPECT_NEAR(rate.At(600), 0.05, 1e-12);
  EXPECT_NEAR(rate.At(10'000), 0.05, 1e-12);
  for (int step = 51; step < 600; ++step) EXPECT_LT(rate.At(step), rate.At(step - 1));
  const LearningRate level{.peak = 2, .warmup_steps = 0, .steps = 5, .cosine = false};
  EXPECT_DOUBLE_EQ(level.At(0), 2);
  EXPECT_DOUBLE_EQ(level.At(100), 2);
}

TEST(TrainConfig, TheDefaultTextIsAConfigurationOfAnyWorld) {
  for (const int world : {1, 2, 3, 7, 600}) {
    const auto config = ParseZeroConfig(DefaultConfigText({.accumulation = 3}, world), world);
    ASSERT_TRUE(config.ok()) << world << config.status().ToString();
    EXPECT_EQ(config->micro_batch_size * 3 * world, config->train_batch_size);
  }
}

TEST(TrainConfig, CompressionIsToldInWords) {
  const auto of = [](int stage, bool enabled) {
    const std::string text = R"({"train_batch_size": 8, "zero_optimization": {"stage": )" +
                             std::to_string(stage) + R"(}, "zero_pp": {"enabled": )" +
                             (enabled ? "true" : "false") + "}}";
    const auto config = ParseZeroConfig(text, 4);
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    return CompressionText(*config);
  };
  EXPECT_EQ(of(3, false), "none");
  EXPECT_THAT(of(3, true), HasSubstr("weight gathers int8/256"));
  EXPECT_THAT(of(2, true), HasSubstr("weight differences int4/128"));
  EXPECT_THAT(of(2, true), HasSubstr("int8/256 inside, int4/128/sqrt across"));
  EXPECT_THAT(of(2, true), HasSubstr("second_hop"));
}

}  // namespace
}  // namespace zpp::cli
