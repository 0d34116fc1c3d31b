// Figures of a training, and how they are told.
#include "cli/train_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "cli/train_json.h"
#include "cli/train_table.h"

namespace zpp::cli {
namespace {

using testing::HasSubstr;

TrainStep Step(int64_t number, double loss, double time_ms, int64_t inter) {
  TrainStep step;
  step.step = number;
  step.loss = loss;
  step.time_ms = time_ms;
  step.wire = {.intra = 2 * inter, .inter = inter};
  return step;
}

TEST(TrainRunTest, SummaryIsMedianMeanAndLastSteps) {
  std::vector<TrainStep> steps;
  for (int i = 1; i <= 30; ++i) steps.push_back(Step(i, i <= 10 ? 100 : i, i == 1 ? 1e6 : 10, i));
  const TrainSummary summary = Summarize(steps, 512);
  EXPECT_DOUBLE_EQ(summary.train_loss, 20.5);  // of steps 11 to 30
  EXPECT_DOUBLE_EQ(summary.time_ms, 10);
  EXPECT_DOUBLE_EQ(summary.wire_inter, 15.5);
  EXPECT_DOUBLE_EQ(summary.wire_intra, 31);
  EXPECT_NEAR(summary.tokens_per_s, 512 * 30 / (1e6 + 290) * 1e3, 1e-6);
  EXPECT_DOUBLE_EQ(Summarize({Step(1, 3, 2, 0), Step(2, 5, 4, 0)}, 1).time_ms, 3);
  EXPECT_DOUBLE_EQ(Summarize({}, 512).train_loss, 0);
}

TrainReport Compared(double time_before, double time_after, double inter_before) {
  TrainReport report;
  report.baseline.emplace();
  report.baseline->summary = {.val_loss = 2, .time_ms = time_before, .wire_intra = 80};
  report.baseline->summary->wire_inter = inter_before;
  report.run.summary = {.val_loss = 2.02, .time_ms = time_after, .wire_intra = 20};
  report.run.summary->wire_inter = inter_before / 8;
  return report;
}

TEST(TrainRunTest, ComparisonIsOfWholeTrainings) {
  const auto compared = Compare(Compared(30, 10, 40));
  ASSERT_TRUE(compared.has_value());
  EXPECT_DOUBLE_EQ(compared->speedup, 3);
  EXPECT_DOUBLE_EQ(compared->wire_ratio, 0.125);
  EXPECT_NEAR(compared->val_loss_percent, 1, 1e-9);
  EXPECT_DOUBLE_EQ(Compare(Compared(30, 10, 0))->wire_ratio, 0.25);  // one node: all bytes
  TrainReport half = Compared(30, 10, 40);
  half.run.summary.reset();
  EXPECT_FALSE(Compare(half).has_value());
  EXPECT_TRUE(ToJson(half)["speedup"].is_null());
  EXPECT_FALSE(Compare(TrainReport()).has_value());
}

TEST(TrainRunTest, JsonOfALossThatIsNoNumberIsValid) {
  TrainReport report;
  report.run.steps.push_back(Step(1, NAN, 1, 0));
  report.run.steps.back().grad_norm = INFINITY;
  report.run.notes = {"not \xff UTF-8"};
  report.error = "it \"diverged\"";
  const std::string text =
      ToJson(report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  const nlohmann::json back = nlohmann::json::parse(text);
  EXPECT_TRUE(back["steps"][0]["loss"].is_null());
  EXPECT_TRUE(back["steps"][0]["grad_norm"].is_null());
  EXPECT_TRUE(back["final"].is_null());
  EXPECT_EQ(back["error"], report.error);
}

TEST(TrainRunTest, ErrorsBeforeTheStartHaveTheSameKeys) {
  const nlohmann::json json = TrainErrorJson("no");
  EXPECT_TRUE(json["steps"].empty());
  EXPECT_TRUE(json["final"].is_null());
  EXPECT_EQ(json["error"], "no");
}

TEST(TrainRunTest, LinesAreAlignedAndSayWhatIsSpecial) {
  TrainStep step = Step(7, 1.25, 10, 1'500'000);
  const std::string plain = StepLine(step);
  EXPECT_THAT(plain, HasSubstr("1.2500"));
  EXPECT_THAT(plain, HasSubstr("1.50 MB"));
  EXPECT_THAT(plain, HasSubstr("3.00 MB"));
  step.exact = true;
  EXPECT_THAT(StepLine(step), HasSubstr("exact"));
  step.skipped = true;
  EXPECT_THAT(StepLine(step), HasSubstr("skipped"));
  const std::string tail = TrainTail(Compared(30, 10, 40));
  EXPECT_THAT(tail, HasSubstr("3.00x as fast"));
  EXPECT_THAT(tail, HasSubstr("+1.00 %"));
  EXPECT_EQ(TrainTail(TrainReport()), "");
}

TEST(TrainRunTest, ProgressIsLinesWhereThereIsNoTerminal) {
  FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  TrainProgress progress(file, 100);
  TrainRun run;
  for (int i = 1; i <= 100; ++i) {
    run.steps.push_back(Step(i, 1, 1, 1));
    if (i == 42) run.steps.back().skipped = true;
    progress.Show(run);
  }
  progress.Close();
  std::rewind(file);
  int lines = 0;
  bool skipped = false;
  char line[512];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    ++lines;
    skipped |= std::string(line).find("skipped") != std::string::npos;
  }
  std::fclose(file);
  EXPECT_EQ(lines, 22);  // the first, every fifth, and the one that was skipped
  EXPECT_TRUE(skipped);
}

}  // namespace
}  // namespace zpp::cli
