// Text from files, what is held out, and batches that do not depend on the world.
#include "cli/lm/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace zpp::lm {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class LmText : public testing::Test {
 protected:
  LmText() : folder_(testing::TempDir() + "lm_text" + std::to_string(getpid())) {
    fs::create_directories(folder_);
  }
  ~LmText() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << content;
    return Path(name);
  }

  std::string folder_;
};

std::string AsString(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

TEST_F(LmText, OfASingleFileTheEndIsHeldOut) {
  std::string content;
  for (int i = 0; i < 1000; ++i) content += static_cast<char>('a' + i % 26);
  const auto text = ReadText(Write("one.txt", content));
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_EQ(AsString(text->train), content.substr(0, 950));
  EXPECT_EQ(AsString(text->held_out), content.substr(950));
  EXPECT_EQ(text->files, 1);
}

TEST_F(LmText, OfAFolderEveryTwentiethFileIsHeldOut) {
  for (int i = 0; i < 45; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "sub%d/file%02d", i / 20, i);
    Write(name, "<" + std::to_string(i) + ">");
  }
  const auto text = ReadText(folder_);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_EQ(AsString(text->held_out), "<19><39>");
  EXPECT_THAT(AsString(text->train), testing::StartsWith("<0><1><2>"));
  EXPECT_THAT(AsString(text->train), HasSubstr("<18><20>"));
  EXPECT_EQ(text->files, 45);
  EXPECT_EQ(text->held_out_files, 2);
}

TEST_F(LmText, OfAFewFilesTheEndOfTheLastIsHeldOut) {
  Write("b", std::string(100, 'b'));
  Write("a", std::string(100, 'a'));
  const auto text = ReadText(folder_);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(AsString(text->train), std::string(100, 'a') + std::string(90, 'b'));
  EXPECT_EQ(AsString(text->held_out), std::string(10, 'b'));
}

TEST_F(LmText, WhatIsNoTextIsLeftOut) {
  Write("binary.txt", std::string("text") + '\0' + "more");
  Write(".hidden", "hidden");
  Write(".git/config", "hidden too");
  Write("kept", std::string(40, 'k'));
  fs::create_symlink(Path("kept"), Path("link"));
  const auto text = ReadText(folder_);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(AsString(text->train), std::string(38, 'k'));
  EXPECT_EQ(text->files, 1);
}

TEST_F(LmText, BadInputIsOneSentenceThatNamesIt) {
  EXPECT_THAT(ReadText(Path("none")).status().message(), HasSubstr(Path("none")));
  EXPECT_EQ(ReadText(Path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(ReadText(folder_).status().message(), HasSubstr("holds no text"));
  EXPECT_THAT(ReadText(Write("empty", "")).status().message(), HasSubstr("holds no text"));
  EXPECT_THAT(ReadText(Write("nul", std::string(3, '\0'))).status().message(),
              HasSubstr("zero byte"));
  EXPECT_THAT(ReadText("/dev/null").status().message(), HasSubstr("neither a file nor a folder"));
}

TEST_F(LmText, AFileThatFailsWhileItIsReadIsNamed) {
  const auto text = ReadText("/proc/self/mem");  // opens, but its first bytes are not there
  EXPECT_EQ(text.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(text.status().message(), HasSubstr("cannot read /proc/self/mem"));
}

TEST_F(LmText, FilesThatCannotBeOpenedAreNamed) {
  if (geteuid() == 0) GTEST_SKIP() << "probe: root reads every file";
  fs::permissions(Write("locked", "x"), fs::perms::none);
  EXPECT_THAT(ReadText(folder_).status().message(), HasSubstr("locked"));
}

TEST_F(LmText, TextShorterThanTheWindowIsRefused) {
  const auto tiny = ReadText(Write("tiny", std::string(20, 'x')));
  ASSERT_TRUE(tiny.ok());
  EXPECT_THAT(CheckLongEnough(*tiny, 30).message(), HasSubstr("training part has 19 bytes"));
  EXPECT_THAT(CheckLongEnough(*tiny, 16).message(), HasSubstr("held-out part has 1 bytes"));
  Text text;
  text.train.resize(17);
  text.held_out.resize(17);
  EXPECT_TRUE(CheckLongEnough(text, 16).ok());
  EXPECT_FALSE(CheckLongEnough(text, 17).ok());
  EXPECT_EQ(ValidationRows(text, 16), 1);
  EXPECT_EQ(TrainingBatch(text, 16, {.rows = 5}).rows(), 5);
}

// Bytes that tell their place.
Text Numbered(size_t train, size_t held_out) {
  Text text;
  for (size_t i = 0; i < train; ++i) text.train.push_back(static_cast<uint8_t>(i % 251));
  for (size_t i = 0; i < held_out; ++i) text.held_out.push_back(static_cast<uint8_t>(i % 241));
  return text;
}

TEST(LmBatch, AnyNumberOfRanksSeesTheSameGlobalBatch) {
  const Text text = Numbered(5000, 5000);
  constexpr int64_t kRows = 48;
  for (const int64_t step : {0, 1, 1000}) {
    const Batch whole = TrainingBatch(text, 16, {.seed = 4, .step = step, .rows = kRows});
    for (const int64_t world : {1, 2, 3, 4, 8}) {
      Batch joined;
      for (int64_t rank = 0; rank < world; ++rank) {
        const int64_t rows = kRows / world;
        const Batch part = TrainingBatch(
            text, 16, {.seed = 4, .step = step, .first_row = rank * rows, .rows = rows});
        joined.inputs.insert(joined.inputs.end(), part.inputs.begin(), part.inputs.end());
        joined.targets.insert(joined.targets.end(), part.targets.begin(), part.targets.end());
      }
      EXPECT_EQ(joined.inputs, whole.inputs) << world;
      EXPECT_EQ(joined.targets, whole.targets) << world;
    }
  }
}

TEST(LmBatch, RowsAreWindowsAndTheByteThatFollows) {
  const Text text = Numbered(251, 251);
  const Batch batch = TrainingBatch(text, 5, {.seed = 1, .rows = 400});
  std::set<int> starts;
  for (size_t row = 0; row < 400; ++row) {
    const int start = batch.inputs[row * 5];
    for (size_t i = 0; i < 5; ++i)
      EXPECT_EQ(batch.inputs[row * 5 + i], start + static_cast<int>(i));
    EXPECT_EQ(batch.targets[row], start + 5);
    starts.insert(start);
  }
  EXPECT_GT(starts.size(), 150u);  // of 246 places, 400 draws
}

TEST(LmBatch, StepsSeedsAndRowsDiffer) {
  const Text text = Numbered(100'000, 100);
  const auto inputs = [&](uint64_t seed, int64_t step) {
    return TrainingBatch(text, 8, {.seed = seed, .step = step, .rows = 64}).inputs;
  };
  EXPECT_NE(inputs(1, 0), inputs(1, 1));
  EXPECT_NE(inputs(1, 0), inputs(2, 0));
  EXPECT_EQ(inputs(1, 0), inputs(1, 0));
}

TEST(LmBatch, ValidationIsFixedAndCoversASmallPartWhole) {
  const Text small = Numbered(100, 300);
  EXPECT_EQ(ValidationRows(small, 16), 284);
  const Batch all = ValidationBatch(small, 16, 0, 284);
  EXPECT_EQ(all.targets.front(), 16);
  EXPECT_EQ(all.targets.back(), 299 % 241);
  const Text large = Numbered(100, 100'000);
  EXPECT_EQ(ValidationRows(large, 16), 16384);
  const Batch part = ValidationBatch(large, 16, 1000, 10);
  EXPECT_EQ(part.inputs, ValidationBatch(large, 16, 1000, 10).inputs);
  const Batch longer = ValidationBatch(large, 16, 0, 1010);
  EXPECT_TRUE(std::equal(part.inputs.begin(), part.inputs.end(), longer.inputs.end() - 160));
}

TEST(LmTextValue, FingerprintsTellTheBytesAndTheCut) {
  const uint64_t one = Numbered(100, 50).Fingerprint();
  EXPECT_EQ(one, Numbered(100, 50).Fingerprint());
  EXPECT_NE(one, Numbered(101, 50).Fingerprint());
  EXPECT_NE(one, Numbered(100, 51).Fingerprint());
  Text changed = Numbered(100, 50);
  changed.train[40] ^= 1;
  EXPECT_NE(one, changed.Fingerprint());
}

TEST(LmTextValue, TheDefaultIsTheStandardLibrary) {
  const auto folder = DefaultTextFolder();
  ASSERT_TRUE(folder.ok()) << folder.status().ToString();
  EXPECT_TRUE(fs::exists(*folder + "/vector")) << *folder;
}

}  // namespace
}  // namespace zpp::lm
