// `zpp train` as its users run it: real processes over UCX, exit codes, JSON, checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Ran {
  int code = -1;
  std::string out, err;
};

class TrainProgram : public testing::Test {
 protected:
  TrainProgram() : folder_(testing::TempDir() + "zpptrain" + std::to_string(getpid())) {
    fs::create_directories(Path("text"));
    for (int i = 0; i < 25; ++i) {
      std::ofstream file(Path("text/file" + std::to_string(100 + i)));
      for (int line = 0; line < 20; ++line)
        file << "line " << line << " of file " << i << ": the quick brown fox jumps\n";
    }
  }
  ~TrainProgram() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  // `before` is shell text: variables, limits.
  Ran Run(const std::string& args, const std::string& before = "",
          const std::string& id = "") const {
    const std::string command = "bash -c '" + before + " timeout 100 " ZPP_PROGRAM " train " +
                                args + "' >" + Path("out" + id) + " 2>" + Path("err" + id);
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, ReadFile(Path("out" + id)),
            ReadFile(Path("err" + id))};
  }
  // A small model on the folder of text, two ranks on two nodes.
  std::string Small(const std::string& more) const {
    return "--data " + Path("text") + " --model tiny --ranks 2 " + more;
  }
  std::string Config(const std::string& text) const {
    std::ofstream(Path("config.json")) << text;
    return "--config " + Path("config.json") + " ";
  }
  std::vector<double> Losses(const std::string& file) const {
    std::vector<double> losses;
    const json report = json::parse(ReadFile(Path(file)));
    for (const json& step : report["steps"]) losses.push_back(step["loss"]);
    return losses;
  }

  std::string folder_;
};

void ExpectOneSentence(const Ran& ran, const std::string& about) {
  EXPECT_EQ(ran.code, 2) << ran.out << ran.err;
  EXPECT_THAT(ran.err, testing::StartsWith("zpp: "));
  EXPECT_THAT(ran.err, HasSubstr(about));
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
}

void ExpectRun(const json& run, size_t steps) {
  ASSERT_EQ(run["steps"].size(), steps);
  for (const json& step : run["steps"]) {
    for (const char* key : {"step", "loss", "grad_norm", "loss_scale", "time_ms", "rel_error"})
      EXPECT_TRUE(step[key].is_number()) << key;
    EXPECT_TRUE(step["wire_bytes"]["intra"].is_number_integer());
    EXPECT_TRUE(step["wire_bytes"]["inter"].is_number_integer());
  }
  for (const char* key : {"train_loss", "val_loss", "tokens_per_s", "peak_rss_bytes"})
    EXPECT_GT(run["final"][key], 0) << key;
  EXPECT_TRUE(run["final"].contains("wire_bytes_per_step"));
  EXPECT_TRUE(run["config"].is_object());
  EXPECT_TRUE(run["audit"].is_object());
}

TEST_F(TrainProgram, TenStepsInEveryStage) {
  for (const char* stage : {"0", "1", "2", "3"}) {
    const Ran ran = Run(Small("--steps 10 --json " + Path("json") + " --stage " + stage));
    ASSERT_EQ(ran.code, 0) << stage << ran.out << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("memory of a rank, estimated"));
    EXPECT_THAT(ran.out, HasSubstr("val loss"));
    EXPECT_EQ(ran.err, "");
    const json report = json::parse(ReadFile(Path("json")));
    EXPECT_EQ(report["ranks"], 2);
    EXPECT_EQ(report["nodes"], 2);
    ExpectRun(report, 10);
    EXPECT_GT(report["steps"][9]["wire_bytes"]["inter"], 0);
    EXPECT_LT(report["steps"][9]["loss"], report["steps"][0]["loss"]);
  }
}

TEST_F(TrainProgram, CompareTrainsBothWaysAndJsonStandsAlone) {
  const Ran ran = Run(Small("--steps 8 --stage 2 --compare --json -"));
  ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
  const json report = json::parse(ran.out);
  ExpectRun(report["baseline"], 8);
  ExpectRun(report["compressed"], 8);
  EXPECT_FALSE(report.contains("steps"));
  EXPECT_GT(report["speedup"], 0);
  EXPECT_LT(report["wire_ratio"], 0.5);
  EXPECT_THAT(ran.err, HasSubstr("as fast"));
}

TEST_F(TrainProgram, ConfigurationsAndThrottledLinks) {
  const std::string config = Config(R"({"train_batch_size": 16, "gradient_accumulation_steps": 2,
      "bf16": {"enabled": true}, "zero_optimization": {"stage": 1},
      "optimizer": {"type": "SGD", "params": {"lr": 0.1}}})");
  const Ran ran = Run(Small(config + "--steps 3 --inter-gbits 10 --json -"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json report = json::parse(ran.out);
  EXPECT_EQ(report["config"]["train_batch_size"], 16);
  EXPECT_EQ(report["config"]["zero_optimization"]["stage"], 1);
}

TEST_F(TrainProgram, ResumingAfterAKillGivesTheBitsOfAnUnbrokenRun) {
  const std::string args = Small("--steps 40 --save-every 2 --seed 3 ");
  ASSERT_EQ(Run(args + "--save " + Path("whole") + " --json " + Path("whole.json")).code, 0);
  // Killed somewhere behind its third checkpoint; over a slow link, so that it cannot end before.
  const std::string killed =
      "(" ZPP_PROGRAM " train " + args + "--inter-gbits 0.005 --save " + Path("broken") +
      " >/dev/null 2>&1 & pid=$!; for i in {1..500}; do [ -e " + Path("broken/step-00000006") +
      " ] && break; sleep 0.02; done; kill -9 $pid; wait $pid) 2>/dev/null";
  ASSERT_EQ(WEXITSTATUS(std::system(("bash -c '" + killed + "'").c_str())), 137);
  const Ran ran = Run(args + "--resume " + Path("broken") + " --save " + Path("broken") +
                      " --json " + Path("rest.json"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  const std::vector<double> whole = Losses("whole.json"), rest = Losses("rest.json");
  ASSERT_LE(rest.size(), 34u);
  EXPECT_EQ(rest, std::vector<double>(whole.end() - static_cast<long>(rest.size()), whole.end()));
  EXPECT_EQ(json::parse(ReadFile(Path("rest.json")))["final"]["val_loss"],
            json::parse(ReadFile(Path("whole.json")))["final"]["val_loss"]);
}

TEST_F(TrainProgram, ACheckpointGoesOnWithAnotherNumberOfRanks) {
  ASSERT_EQ(Run(Small("--steps 4 --batch 48 --save " + Path("two"))).code, 0);
  for (const char* ranks : {"1", "3", "4"}) {
    const Ran ran = Run("--data " + Path("text") + " --model tiny --steps 6 --batch 48 --resume " +
                        Path("two") + " --json - --ranks " + ranks);
    ASSERT_EQ(ran.code, 0) << ranks << ran.err;
    const json report = json::parse(ran.out);
    EXPECT_EQ(report["first_step"], 4);
    EXPECT_EQ(report["steps"].size(), 2u);
  }
}

TEST_F(TrainProgram, AFullDiskLeavesTheOldCheckpointWhole) {
  // Alone, so that the limit meets no file of the transport's.
  const std::string args =
      "--data " + Path("text") + " --model tiny --ranks 1 --seed 2 --save " + Path("saved") + " ";
  ASSERT_EQ(Run(args + "--steps 3").code, 0);
  const Ran full = Run(args + "--steps 6 --resume " + Path("saved") + " --json -", "ulimit -f 20;");
  EXPECT_EQ(full.code, 2) << full.err;
  EXPECT_THAT(full.err, HasSubstr("--save"));
  EXPECT_THAT(json::parse(full.out)["error"], HasSubstr("--save"));
  const Ran again = Run(args + "--steps 6 --json - --resume " + Path("saved"));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(json::parse(again.out)["first_step"], 3);
}

TEST_F(TrainProgram, BadDataIsOneSentence) {
  ExpectOneSentence(Run("--ranks 2 --data " + Path("nowhere")), "nowhere");
  fs::create_directories(Path("empty"));
  ExpectOneSentence(Run("--ranks 2 --data " + Path("empty")), "holds no text");
  std::ofstream(Path("short")) << std::string(100, 'x');
  ExpectOneSentence(Run("--ranks 2 --data " + Path("short")), "shorter than the window");
  ExpectOneSentence(Run("--ranks 2 --data /proc/self/mem"), "cannot read");
}

TEST_F(TrainProgram, BadConfigurationsAreOneSentence) {
  const auto with = [&](const std::string& text) { return Run(Small(Config(text))); };
  ExpectOneSentence(with(R"({"train_batch_size": 8, "gradient_cliping": 1})"), "gradient_clipping");
  ExpectOneSentence(with(R"({"train_batch_size": "8"})"), "train_batch_size");
  ExpectOneSentence(with(R"({"train_batch_size": 7})"), "train_batch_size");
  ExpectOneSentence(with(R"({"train_batch_size": 8, "zero_optimization": {"stage": 4}})"), "stage");
  ExpectOneSentence(with(R"({"train_batch_size": 8, "zero_optimization":
      {"stage": 3, "zero_quantized_weights": true, "zero_hpz_partition_size": 3}})"),
                    "zero_hpz_partition_size");
  ExpectOneSentence(with("{"), "config.json");
  ExpectOneSentence(Run(Small("--config " + Path("missing.json"))), "missing.json");
  ExpectOneSentence(Run(Small("--steps 0")), "--steps");
  ExpectOneSentence(Run(Small("--nodes 3")), "--nodes");
}

TEST_F(TrainProgram, BadCheckpointsAreOneSentence) {
  ASSERT_EQ(Run(Small("--steps 3 --save " + Path("saved"))).code, 0);
  const std::string resume = "--steps 5 --resume " + Path("saved") + " ";
  ExpectOneSentence(Run(Small(resume + "--hidden 32")), "head.weight");
  ExpectOneSentence(Run(Small(resume + "--seed 9")), "--seed");
  ExpectOneSentence(Run(Small("--steps 3 --resume " + Path("saved"))), "--steps");
  ExpectOneSentence(Run(Small("--steps 5 --resume " + Path("none"))), "none");
  fs::resize_file(Path("saved/step-00000003/rank-00001.safetensors"), 1000);
  ExpectOneSentence(Run(Small(resume)), "rank-00001.safetensors");
  fs::remove(Path("saved/step-00000003/rank-00001.safetensors"));
  ExpectOneSentence(Run(Small(resume)), "rank-00001.safetensors");
}

TEST_F(TrainProgram, WhatCannotBeWrittenIsSaidBeforeTraining) {
  std::ofstream(Path("file")) << "in the way";
  const std::string long_run = "--steps 1000000 ";
  ExpectOneSentence(Run(Small(long_run + "--save " + Path("file/saved"))), "file/saved");
  ExpectOneSentence(Run(Small(long_run + "--save " + Path("file"))), "file");
  ExpectOneSentence(Run(Small(long_run + "--export " + Path("none/weights"))), "none");
  ExpectOneSentence(Run(Small(long_run + "--json " + Path("none/json"))), "none");
}

TEST_F(TrainProgram, TheExportHoldsAllWeights) {
  ASSERT_EQ(Run(Small("--steps 2 --compute bf16 --export " + Path("weights.safetensors"))).code, 0);
  const std::string file = ReadFile(Path("weights.safetensors"));
  for (const char* name : {"embedding.weight", "hidden.0.weight", "hidden.0.bias", "head.weight"})
    EXPECT_THAT(file.substr(0, 2000), HasSubstr(name));
  EXPECT_GT(file.size(), 2 * 28992u);
}

TEST_F(TrainProgram, BadInputGivesJsonToo) {
  const Ran ran = Run("--ranks 2 --json - --data " + Path("nowhere"));
  EXPECT_EQ(ran.code, 2);
  const json report = json::parse(ran.out);
  EXPECT_THAT(report["error"], HasSubstr("nowhere"));
  EXPECT_TRUE(report["steps"].empty());
}

TEST_F(TrainProgram, UnderALauncherOneRanksBadDataEndsAll) {
  const auto rank = [&](int index, const std::string& data) {
    return Run("--model tiny --steps 2 --nodes 2 --timeout 60 --data " + data,
               "RANK=" + std::to_string(index) +
                   " WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=" +
                   std::to_string(20000 + getpid() % 20000),
               std::to_string(index));
  };
  Ran first;
  std::thread other([&] { first = rank(0, Path("text")); });
  const Ran second = rank(1, Path("nowhere"));
  other.join();
  EXPECT_EQ(second.code, 2) << second.err;
  EXPECT_EQ(first.code, 2) << first.err;
  EXPECT_THAT(first.err, HasSubstr("rank 1: cannot read"));
}

TEST_F(TrainProgram, UnderALauncherOtherFlagsAreNamedOnce) {
  const auto rank = [&](int index) {
    return Run("--model tiny --nodes 2 --timeout 60 --data " + Path("text") + " --steps " +
                   std::to_string(2 + index),
               "RANK=" + std::to_string(index) +
                   " WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=" +
                   std::to_string(20000 + getpid() % 20000),
               std::to_string(index));
  };
  Ran first;
  std::thread other([&] { first = rank(0); });
  const Ran second = rank(1);
  other.join();
  EXPECT_EQ(first.code, 1) << first.err;
  EXPECT_EQ(second.code, 1) << second.err;
  EXPECT_THAT(first.err, HasSubstr("rank 1 was started with other flags"));
  EXPECT_EQ(second.err, "");
}

TEST_F(TrainProgram, AnInterruptedTrainingLeavesValidJson) {
  // Once the first steps are printed.
  const std::string command =
      ZPP_PROGRAM " train " + Small("--steps 1000000 --json " + Path("json")) + " >" + Path("out") +
      " 2>" + Path("err") + " & pid=$!; for i in {1..1000}; do grep -q \"[0-9] ms\" " +
      Path("out") + " && break; sleep 0.02; done; kill -INT $pid; wait $pid";
  const int status = std::system(("bash -c '" + command + "'").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 130);
  const json report = json::parse(ReadFile(Path("json")));
  EXPECT_THAT(report["error"], HasSubstr("interrupted"));
  EXPECT_TRUE(report["final"].is_null());
  EXPECT_FALSE(report["steps"].empty());
}

}  // namespace
