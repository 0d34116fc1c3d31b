// Training as rank threads of one process, without a program around it.
#include "cli/train_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <thread>

#include "cli/train_config.h"
#include "cli/train_json.h"
#include "cli/train_rank.h"
#include "collectives/connect.h"

namespace zpp::cli {
namespace {

using testing::HasSubstr;

lm::Text SomeText() {
  lm::Text text;
  const std::string line = "for (int i = 0; i < n; ++i) sum += values[i] * weights[i];\n";
  for (int i = 0; i < 400; ++i) {
    for (const char c : line) text.train.push_back(static_cast<uint8_t>(c));
    text.train.push_back(static_cast<uint8_t>('a' + i % 26));
  }
  text.held_out.assign(text.train.begin(), text.train.begin() + 1500);
  text.source = "lines";
  return text;
}

struct Setting {
  int world = 2;
  int nodes = 2;
  int stage = 3;
  bool compressed = true;
  int64_t steps = 10;
  int accumulation = 1;
};

class TrainSessionTest : public testing::Test {
 protected:
  TrainSessionTest() : folder_(testing::TempDir() + "train" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~TrainSessionTest() override { std::filesystem::remove_all(folder_); }

  TrainArgs Args(const Setting& s) const {
    LaunchEnv launched;
    launched.world = s.world;
    TrainFlags flags;
    flags.model = "tiny";
    flags.batch = 48;
    flags.accumulation = s.accumulation;
    flags.stage = s.stage;
    flags.steps = s.steps;
    flags.data = folder_;
    const Result<TrainArgs> args = ResolveTrain(flags, &launched);
    EXPECT_TRUE(args.ok()) << args.status().ToString();
    TrainArgs all = *args;
    if (!s.compressed) all.config = Uncompressed(all.config);
    all.nodes = s.nodes;
    return all;
  }

  // All ranks' statuses must be equal; returns rank 0's report.
  static Result<TrainReport> Train(const TrainArgs& args, const lm::Text& text) {
    ConnectOptions options = OptionsFor(args);
    options.communicator.timeout_s = 30;
    auto comms = ConnectInProcess(args.world, options);
    if (!comms.ok()) return comms.status();
    std::vector<TrainReport> reports(comms->size());
    std::vector<Status> statuses(comms->size());
    std::vector<std::thread> threads;
    const TrainEvents silent = {.starts = [](const TrainRun&) {},
                                .advanced = [](const TrainRun&) {}};
    for (size_t rank = 0; rank < comms->size(); ++rank) {
      threads.emplace_back([&, rank] {
        statuses[rank] = TrainAll(args, text, *(*comms)[rank], silent, &reports[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), statuses[0].code()) << status.ToString();
    }
    if (!statuses[0].ok()) return statuses[0];
    return reports[0];
  }

  std::string folder_;
};

std::vector<double> Losses(const TrainRun& run) {
  std::vector<double> losses;
  for (const TrainStep& step : run.steps) losses.push_back(step.loss);
  return losses;
}

TEST_F(TrainSessionTest, LearnsAndFillsInEveryFigure) {
  const Result<TrainReport> report = Train(Args({.steps = 60}), SomeText());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  const TrainRun& run = report->run;
  ASSERT_EQ(run.steps.size(), 60u);
  EXPECT_NEAR(run.steps.front().loss, std::log(256), 0.5);
  EXPECT_LT(run.steps.back().loss, 0.7 * run.steps.front().loss);
  for (size_t i = 0; i < run.steps.size(); ++i) {
    EXPECT_EQ(run.steps[i].step, static_cast<int64_t>(i) + 1);
    EXPECT_GT(run.steps[i].grad_norm, 0);
    EXPECT_GT(run.steps[i].time_ms, 0);
    EXPECT_GT(run.steps[i].wire.inter, 0);
    EXPECT_GT(run.steps[i].rel_error, 0);
    EXPECT_LT(run.steps[i].rel_error, 0.5);
  }
  ASSERT_TRUE(run.summary.has_value());
  EXPECT_LT(run.summary->val_loss, 0.7 * std::log(256));
  EXPECT_GT(run.summary->tokens_per_s, 0);
  EXPECT_GT(run.summary->peak_rss_bytes, 0);
  EXPECT_EQ(run.validations.size(), 1u);
}

TEST_F(TrainSessionTest, SameSeedSameBitsAndAnotherSeedAnotherRun) {
  TrainArgs args = Args({});
  const auto first = Train(args, SomeText());
  const auto again = Train(args, SomeText());
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(Losses(first->run), Losses(again->run));
  EXPECT_EQ(first->run.summary->val_loss, again->run.summary->val_loss);
  args.seed = 2;
  EXPECT_NE(Losses(Train(args, SomeText())->run), Losses(first->run));
}

TEST_F(TrainSessionTest, UncompressedItIsTheSameTrainingOnAnyWorldAndStage) {
  const auto alone =
      Train(Args({.world = 1, .nodes = 1, .stage = 0, .compressed = false}), SomeText());
  ASSERT_TRUE(alone.ok()) << alone.status().ToString();
  for (const Setting& setting :
       {Setting{.world = 2, .stage = 0, .compressed = false},
        Setting{.world = 3, .compressed = false},
        Setting{.world = 4, .stage = 2, .compressed = false},
        Setting{.world = 2, .stage = 1, .compressed = false, .accumulation = 2}}) {
    const auto other = Train(Args(setting), SomeText());
    ASSERT_TRUE(other.ok()) << other.status().ToString();
    for (size_t i = 0; i < alone->run.steps.size(); ++i) {
      EXPECT_NEAR(other->run.steps[i].loss, alone->run.steps[i].loss, 1e-3) << setting.world;
    }
    EXPECT_NEAR(other->run.summary->val_loss, alone->run.summary->val_loss, 1e-3);
  }
}

TEST_F(TrainSessionTest, ResumingGivesTheBitsOfAnUnbrokenRun) {
  for (const int stage : {1, 3}) {
    TrainArgs args = Args({.stage = stage, .steps = 12});
    args.save = folder_ + "/stage" + std::to_string(stage);
    args.save_every = 5;
    const auto whole = Train(args, SomeText());
    ASSERT_TRUE(whole.ok()) << whole.status().ToString();
    args.resume = args.save + "/step-00000005";
    args.save.clear();
    const auto rest = Train(args, SomeText());
    ASSERT_TRUE(rest.ok()) << rest.status().ToString();
    ASSERT_EQ(rest->run.steps.size(), 7u);
    EXPECT_EQ(rest->run.first_step, 5);
    EXPECT_EQ(rest->run.steps.front().step, 6);
    const std::vector<double> all = Losses(whole->run);
    EXPECT_EQ(Losses(rest->run), std::vector<double>(all.begin() + 5, all.end()));
    EXPECT_EQ(rest->run.summary->val_loss, whole->run.summary->val_loss);
  }
}

TEST_F(TrainSessionTest, ACheckpointThatDoesNotFitIsRefusedOnAllRanks) {
  TrainArgs args = Args({.steps = 4});
  args.save = folder_ + "/saved";
  ASSERT_TRUE(Train(args, SomeText()).ok());
  args.resume = args.save;
  args.save.clear();
  EXPECT_THAT(Train(args, SomeText()).status().message(), HasSubstr("4 steps already"));
  args.steps = 8;
  args.seed = 5;
  EXPECT_THAT(Train(args, SomeText()).status().message(), HasSubstr("--seed 1"));
  args.seed = 1;
  args.shape.hidden = 32;
  EXPECT_THAT(Train(args, SomeText()).status().message(), HasSubstr("head.weight"));
  args.resume = folder_ + "/nothing";
  EXPECT_THAT(Train(args, SomeText()).status().message(), HasSubstr("nothing"));
}

TEST_F(TrainSessionTest, AnotherTextOrLengthIsNoted) {
  TrainArgs args = Args({.steps = 3});
  args.save = folder_ + "/saved";
  ASSERT_TRUE(Train(args, SomeText()).ok());
  args.resume = args.save;
  args.save.clear();
  args.steps = 5;
  lm::Text other = SomeText();
  other.train.front() ^= 1;
  const auto resumed = Train(args, other);
  ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
  EXPECT_THAT(resumed->run.notes, testing::Contains(HasSubstr("the text is not the one")));
  EXPECT_THAT(resumed->run.notes, testing::Contains(HasSubstr("--steps was 3")));
}

TEST_F(TrainSessionTest, CompareTrainsTwiceFromTheSameStart) {
  TrainArgs args = Args({.stage = 2, .steps = 20});
  args.baseline = Uncompressed(args.config);
  const auto report = Train(args, SomeText());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ASSERT_TRUE(report->baseline.has_value());
  EXPECT_EQ(report->run.steps[0].loss, report->baseline->steps[0].loss);
  EXPECT_NEAR(report->run.summary->val_loss, report->baseline->summary->val_loss, 0.3);
  EXPECT_EQ(report->baseline->steps[0].rel_error, 0);
  const auto compared = Compare(*report);
  ASSERT_TRUE(compared.has_value());
  EXPECT_GT(compared->speedup, 0);
  // fp32 against int4, both for gradients and for weights.
  EXPECT_LT(compared->wire_ratio, 0.2);
  EXPECT_GT(compared->wire_ratio, 0.1);
  const nlohmann::json json = ToJson(*report);
  EXPECT_EQ(json["baseline"]["steps"].size(), 20u);
  EXPECT_EQ(json["compressed"]["steps"].size(), 20u);
  EXPECT_GT(json["speedup"], 0);
}

TEST_F(TrainSessionTest, ValidationOnTheWayDisturbsNothingAndCountsNoBytes) {
  TrainArgs args = Args({.steps = 12});
  const auto plain = Train(args, SomeText());
  args.eval_every = 3;
  args.save = folder_ + "/often";
  args.save_every = 2;
  const auto often = Train(args, SomeText());
  ASSERT_TRUE(plain.ok() && often.ok());
  EXPECT_EQ(often->run.validations.size(), 4u);
  EXPECT_EQ(Losses(often->run), Losses(plain->run));
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(often->run.steps[i].wire, plain->run.steps[i].wire) << i;
  }
}

TEST_F(TrainSessionTest, TheAuditsFiguresAreInTheJson) {
  TrainArgs args = Args({.steps = 6});
  args.audit = {.every = 2};
  const auto report = Train(args, SomeText());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  const nlohmann::json audit = ToJson(*report)["audit"];
  EXPECT_EQ(audit["every"], 2);
  ASSERT_FALSE(audit["records"].empty());
  EXPECT_GT(audit["records"][0]["cosine"], 0.9);
}

TEST_F(TrainSessionTest, RanksWithOtherTextEndTogether) {
  const TrainArgs args = Args({});
  auto comms = ConnectInProcess(2, OptionsFor(args));
  ASSERT_TRUE(comms.ok());
  std::vector<Status> statuses(2);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      lm::Text text = SomeText();
      text.train.back() ^= static_cast<uint8_t>(rank);
      TrainReport report;
      statuses[rank] = TrainAll(args, text, *(*comms)[rank], {}, &report);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kMismatch);
    EXPECT_THAT(status.message(), HasSubstr("rank 1"));
  }
}

}  // namespace
}  // namespace zpp::cli
