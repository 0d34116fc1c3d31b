// How a folder of checkpoints changes with each save, and what is refused before anything is
// written.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zero/checkpoint_cases.h"
#include "zero/internal/checkpoint_folder.h"

namespace zpp::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::string Text(const Status& status) { return status.ToString(); }

TEST(CheckpointSave, LatestIsTheLastOneSaved) {
  const TempFolder dir;
  for (const int64_t step : {5, 10, 7}) {
    ASSERT_EQ("OK", Text(SaveFrom(2, dir.path(), FewTensors(), step)));
    EXPECT_EQ("OK", Text(CheckCheckpoint(dir.path(), FewTensors(), step)));
  }
  EXPECT_EQ("step-00000007\n", ReadText(dir / "latest"));
  EXPECT_THAT(NamesIn(dir.path()),
              ElementsAre("latest", "step-00000005", "step-00000007", "step-00000010"));
  EXPECT_THAT(NamesIn(dir / "step-00000005"),
              ElementsAre("manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"));
  EXPECT_EQ("OK", Text(CheckCheckpoint(dir / "step-00000010", FewTensors(), 10)));
}

TEST(CheckpointSave, TheSameStepIsReplacedAsAWhole) {
  const TempFolder dir;
  ASSERT_EQ("OK", Text(SaveFrom(4, dir.path(), FewTensors(), 5)));
  ASSERT_EQ("OK", Text(SaveFrom(2, dir.path(), ManyTensors(), 5)));
  EXPECT_EQ("OK", Text(CheckCheckpoint(dir.path(), ManyTensors(), 5)));
  EXPECT_THAT(NamesIn(dir.path()), ElementsAre("latest", "step-00000005"));
  EXPECT_EQ(3u, NamesIn(dir / "step-00000005").size());
}

TEST(CheckpointSave, KeepLastRemovesTheOldest) {
  const TempFolder dir;
  for (int64_t step = 1; step <= 4; ++step) {
    ASSERT_EQ("OK", Text(SaveFrom(2, dir.path(), FewTensors(), step, {.keep_last = 2})));
  }
  EXPECT_THAT(NamesIn(dir.path()), ElementsAre("latest", "step-00000003", "step-00000004"));
  ASSERT_EQ("OK", Text(SaveFrom(2, dir.path(), FewTensors(), 2, {.keep_last = 1})));
  EXPECT_THAT(NamesIn(dir.path()), ElementsAre("latest", "step-00000002"));
  EXPECT_EQ("OK", Text(CheckCheckpoint(dir.path(), FewTensors(), 2)));
  EXPECT_THAT(Text(SaveFrom(2, dir.path(), FewTensors(), 3, {.keep_last = -1})),
              HasSubstr("keep_last is -1"));
}

TEST(CheckpointSave, WhatKilledJobsLeftIsIgnoredAndThenRemoved) {
  const TempFolder dir;
  ASSERT_EQ("OK", Text(SaveFrom(2, dir.path(), FewTensors(), 1)));
  fs::copy(dir / "step-00000001", dir / ".step-00000009.tmp-0123456789abcdef");
  WriteText(dir / "latest.part77_0", "step-");
  WriteText(dir / "notes.txt", "mine");
  EXPECT_EQ("OK", Text(CheckCheckpoint(dir.path(), FewTensors(), 1)));
  ASSERT_EQ("OK", Text(SaveFrom(2, dir.path(), FewTensors(), 2)));
  EXPECT_THAT(NamesIn(dir.path()),
              ElementsAre("latest", "notes.txt", "step-00000001", "step-00000002"));
}

// A job that was killed after it had renamed a step's folder, or before it wrote `latest` anew.
TEST(CheckpointSave, WithoutAUsefulLatestTheNewestStepIsTaken) {
  const TempFolder dir;
  for (const int64_t step : {3, 12}) {
    ASSERT_EQ("OK", Text(SaveFrom(1, dir.path(), FewTensors(), step)));
  }
  fs::create_directory(dir / "step-00000099");  // no manifest: not a checkpoint
  for (const char* latest : {"step-00000077\n", "", "garbage", "../step-00000003"}) {
    WriteText(dir / "latest", latest);
    EXPECT_EQ("OK", Text(CheckCheckpoint(dir.path(), FewTensors(), 12))) << latest;
  }
  fs::remove(dir / "latest");
  EXPECT_EQ("OK", Text(CheckCheckpoint(dir.path(), FewTensors(), 12)));
}

TEST(CheckpointSave, FoldersWithoutCheckpointsAreNamed) {
  const TempFolder dir;
  EXPECT_THAT(Text(CheckpointReader::Open(dir.path()).status()),
              HasSubstr("NOT_FOUND: '" + dir.path() + "' holds no checkpoint"));
  EXPECT_THAT(Text(CheckpointReader::Open(dir / "no").status()),
              HasSubstr("NOT_FOUND: there is no folder '"));
}

// Runs one save that must fail the same way on all ranks and leave what was there as it was.
void ExpectRefused(const SaveBody& body, const std::string& dir, const std::string& sentence) {
  ASSERT_EQ("OK", Text(SaveFrom(2, dir, FewTensors(), 1)));
  const auto before = NamesIn(dir);
  EXPECT_THAT(Text(SaveWith(3, body)), HasSubstr(sentence));
  EXPECT_EQ(before, NamesIn(dir));
  EXPECT_EQ("OK", Text(CheckCheckpoint(dir, FewTensors(), 1)));
}

StatePiece PieceOfTen(int64_t first, int64_t elems) {
  static const std::vector<float> values(16);
  return {.name = "w", .shape = {2, 5}, .first_elem = first, .data = values.data(), .elems = elems};
}

SaveBody SaveRanks(const std::string& dir, std::vector<StatePiece> pieces) {
  return [dir, pieces = std::move(pieces)](Communicator& comm) {
    return SaveCheckpoint(comm, dir, {.step = 2},
                          {&pieces[static_cast<size_t>(comm.rank())], size_t{1}});
  };
}

TEST(CheckpointSave, PiecesMustCoverTheirTensorOnce) {
  const TempFolder dir;
  const auto refuse = [&](std::vector<StatePiece> pieces, const std::string& sentence) {
    ExpectRefused(SaveRanks(dir.path(), std::move(pieces)), dir.path(), sentence);
  };
  refuse({PieceOfTen(0, 4), PieceOfTen(3, 3), PieceOfTen(6, 4)},
         "INVALID_ARGUMENT: rank 0 and rank 1 both own elements 3 to 3 of 'w' (2, 5)");
  refuse({PieceOfTen(5, 5), PieceOfTen(0, 10), PieceOfTen(6, 0)}, "both own elements 5 to 9");
  refuse({PieceOfTen(0, 4), PieceOfTen(4, 3), PieceOfTen(8, 2)},
         "INVALID_ARGUMENT: no rank owns elements 7 to 7 of 'w' (2, 5)");
  refuse({PieceOfTen(0, 4), PieceOfTen(4, 3), PieceOfTen(7, 2)}, "no rank owns elements 9 to 9");
  refuse({PieceOfTen(0, 0), PieceOfTen(4, 0), PieceOfTen(7, 0)}, "no rank owns elements 0 to 9");
  refuse({PieceOfTen(0, 4), PieceOfTen(4, 6), PieceOfTen(10, 1)},
         "rank 2 owns 1 elements from 10 on of 'w' (2, 5), which has 10");
  refuse({PieceOfTen(0, 4), PieceOfTen(4, 6), PieceOfTen(-1, 1)}, "rank 2 owns 1 elements from -1");
}

TEST(CheckpointSave, RanksMustAgreeAboutATensor) {
  const TempFolder dir;
  StatePiece other_type = PieceOfTen(4, 3), other_shape = other_type, partial = other_type;
  other_type.dtype = DType::kBF16;
  other_shape.shape = {10};
  partial.partial = true;
  const auto refuse = [&](const StatePiece& piece, const std::string& sentence) {
    ExpectRefused(SaveRanks(dir.path(), {PieceOfTen(0, 4), piece, PieceOfTen(7, 3)}), dir.path(),
                  sentence);
  };
  refuse(other_type, "rank 1 has 'w' as bf16 (2, 5), rank 0 as fp32 (2, 5)");
  refuse(other_shape, "rank 1 has 'w' as fp32 (10), rank 0 as fp32 (2, 5)");
  refuse(partial, "and only one as partial");
}

TEST(CheckpointSave, AWrongPieceIsNamedWithItsRank) {
  const TempFolder dir;
  StatePiece null = PieceOfTen(4, 3), unnamed = null, negative = null, latin1 = null, huge = null;
  null.data = nullptr;
  unnamed.name = "";
  negative.elems = -1;
  latin1.name = "\xe9";
  huge.shape = {int64_t{1} << 40, int64_t{1} << 40};
  const auto refuse = [&](const StatePiece& piece, const std::string& sentence) {
    ExpectRefused(SaveRanks(dir.path(), {PieceOfTen(0, 4), piece, PieceOfTen(7, 3)}), dir.path(),
                  "INVALID_ARGUMENT: rank 1: " + sentence);
  };
  refuse(null, "the data of 'w' is null");
  refuse(unnamed, "a piece has no name");
  refuse(negative, "a piece of 'w' has -1 elements");
  refuse(latin1, "a tensor's name is not UTF-8");
  refuse(huge, "'w' has the impossible shape (1099511627776, 1099511627776)");
}

TEST(CheckpointSave, RanksMustSaveTheSameStepOfTheSameModel) {
  const TempFolder dir;
  const auto save = [&](auto meta_of) {
    return [&, meta_of](Communicator& comm) {
      return SaveCheckpoint(comm, dir.path(), meta_of(comm.rank()), {});
    };
  };
  ExpectRefused(save([](int rank) { return CheckpointMeta{.step = rank == 2 ? 3 : 2}; }),
                dir.path(), "MISMATCH: rank 2 saves step 3, rank 0 step 2");
  ExpectRefused(save([](int rank) {
                  return CheckpointMeta{.step = 2, .model_fingerprint = rank == 1 ? "a" : "b"};
                }),
                dir.path(), "MISMATCH: rank 1 saves another model than rank 0");
  ExpectRefused(save([](int) { return CheckpointMeta{.step = -2}; }), dir.path(),
                "rank 0: step -2 is negative");
  nlohmann::json deep;
  for (int i = 0; i < 100; ++i) deep = nlohmann::json::array({deep});
  ExpectRefused(save([&](int) { return CheckpointMeta{.step = 2, .state = deep}; }), dir.path(),
                "rank 0: the state or a text cannot be saved: ");
  ExpectRefused(save([&](int) { return CheckpointMeta{.step = 2, .state = "\xff"}; }), dir.path(),
                "not UTF-8");
}

// As on a cluster whose ranks do not share the folder.
TEST(CheckpointSave, AFolderThatARankDoesNotSeeIsNamed) {
  const TempFolder dir, other;
  const auto save = [&](Communicator& comm) {
    const OwnedPieces owned = DealPieces(FewTensors(), comm.rank(), 3, 2);
    return SaveCheckpoint(comm, comm.rank() == 1 ? other / "not there" : dir.path(),
                          MetaOf(FewTensors(), 2), owned.pieces);
  };
  ExpectRefused(save, dir.path(), "NOT_FOUND: rank 1: cannot write '" + other.path());
}

TEST(CheckpointSave, AFolderIsNotAFile) {
  const TempFolder dir;
  WriteText(dir / "file", "text");
  EXPECT_THAT(Text(SaveFrom(2, dir / "file", FewTensors(), 1)), HasSubstr("rank 0: cannot "));
  EXPECT_EQ("text", ReadText(dir / "file"));
  EXPECT_EQ("OK", Text(SaveFrom(2, dir / "a/b/c", FewTensors(), 1)));
}

TEST(CheckpointSave, OneJobAtATime) {
  const TempFolder dir;
  const int fd = open(dir.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(0, flock(fd, LOCK_EX | LOCK_NB));
  EXPECT_THAT(Text(SaveFrom(2, dir.path(), FewTensors(), 1)),
              HasSubstr("UNAVAILABLE: rank 0: another job is saving in '" + dir.path()));
  close(fd);
  EXPECT_EQ("OK", Text(SaveFrom(2, dir.path(), FewTensors(), 1)));
}

// A data loader that is forked in mid save must not keep the next save out.
TEST(CheckpointSave, AChildForkedMeanwhileHoldsNothing) {
  const TempFolder dir;
  pid_t child = -1;
  {
    const auto folder = internal::SaveFolder::Begin(dir.path(), 1, "0123456789abcdef");
    ASSERT_TRUE(folder.ok()) << Text(folder.status());
    EXPECT_EQ(StatusCode::kUnavailable,
              internal::SaveFolder::Begin(dir.path(), 1, "00").status().code());
    child = fork();
    if (child == 0) {
      for (;;) pause();
    }
  }
  EXPECT_EQ("OK", Text(SaveFrom(2, dir.path(), FewTensors(), 2)));
  ASSERT_EQ(0, kill(child, SIGKILL));
  ASSERT_EQ(child, waitpid(child, nullptr, 0));
}

}  // namespace
}  // namespace zpp::test
