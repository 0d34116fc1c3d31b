// What is saved from any world comes back, bit for bit, to any other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "common/safetensors.h"
#include "tests/harness/ranks.h"
#include "tests/zero/checkpoint_cases.h"

namespace zpp::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kWorlds[] = {1, 2, 3, 4, 8};

std::string Text(const Status& status) { return status.ToString(); }

// One rank of `world` reads its share of every tensor, as it would to resume, and leaves what lies
// beside it alone.
Status ReadShare(const CheckpointReader& reader, const std::vector<TensorCase>& tensors, int rank,
                 int world) {
  for (const TensorCase& tensor : tensors) {
    const int64_t first = tensor.elems() * rank / world;
    const int64_t elems = tensor.elems() * (rank + 1) / world - first;
    const auto want = ValuesOf(tensor, first, elems, 7);
    std::vector<std::byte> got(want.size() + 16, std::byte{0xa5});
    ZPP_RETURN_IF_ERROR(reader.Read(tensor.name, first, {tensor.dtype, got.data() + 8, elems}));
    ZPP_REQUIRE_MSG(std::equal(want.begin(), want.end(), got.begin() + 8), tensor.name);
    for (size_t i = 0; i < 8; ++i) ZPP_REQUIRE(got[i] == std::byte{0xa5});
    for (size_t i = 0; i < 8; ++i) ZPP_REQUIRE(got[got.size() - 1 - i] == std::byte{0xa5});
  }
  return {};
}

TEST(Checkpoint, EveryWorldReadsWhatAnyWorldSaved) {
  const auto tensors = ManyTensors();
  for (const int writers : kWorlds) {
    SCOPED_TRACE("saved from " + std::to_string(writers));
    const TempFolder dir;
    ASSERT_EQ("OK", Text(SaveFrom(writers, dir.path(), tensors, 7)));
    EXPECT_EQ("OK", Text(CheckCheckpoint(dir.path(), tensors, 7)));
    EXPECT_EQ("OK", Text(CheckCheckpoint(dir / "step-00000007", tensors, 7)));
    const auto reader = CheckpointReader::Open(dir.path());
    ASSERT_TRUE(reader.ok()) << Text(reader.status());
    EXPECT_EQ(writers, reader->writers());
    for (const int readers : kWorlds) {
      for (int rank = 0; rank < readers; ++rank) {
        EXPECT_EQ("OK", Text(ReadShare(*reader, tensors, rank, readers)))
            << "rank " << rank << " of " << readers;
      }
    }
  }
}

TEST(Checkpoint, AnyRangeIsRead) {
  const auto tensors = ManyTensors();
  const TempFolder dir;
  ASSERT_EQ("OK", Text(SaveFrom(3, dir.path(), tensors, 7)));
  const auto reader = CheckpointReader::Open(dir.path());
  ASSERT_TRUE(reader.ok()) << Text(reader.status());
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    const TensorCase& tensor = tensors[random() % tensors.size()];
    const auto within = [&](int64_t n) {
      return std::uniform_int_distribution<int64_t>(0, n)(random);
    };
    const int64_t first = within(tensor.elems()), elems = within(tensor.elems() - first);
    const auto want = ValuesOf(tensor, first, elems, 7);
    std::vector<std::byte> got(want.size());
    ASSERT_EQ("OK", Text(reader->Read(tensor.name, first, {tensor.dtype, got.data(), elems})));
    ASSERT_TRUE(got == want) << tensor.name << " " << first << " " << elems;
  }
}

TEST(Checkpoint, ThreadsMayShareAReader) {
  const auto tensors = ManyTensors();
  const TempFolder dir;
  ASSERT_EQ("OK", Text(SaveFrom(4, dir.path(), tensors, 7)));
  const auto reader = CheckpointReader::Open(dir.path());
  ASSERT_TRUE(reader.ok()) << Text(reader.status());
  EXPECT_TRUE(AllOk(RunThreads(4, [&](int rank) -> Result<std::string> {
    ZPP_RETURN_IF_ERROR(ReadShare(*reader, tensors, rank, 4));
    return std::string();
  })));
}

TEST(Checkpoint, WhatCannotBeReadIsAWrongArgument) {
  const TempFolder dir;
  ASSERT_EQ("OK", Text(SaveFrom(2, dir.path(), FewTensors(), 7)));
  const auto reader = CheckpointReader::Open(dir.path());
  ASSERT_TRUE(reader.ok()) << Text(reader.status());
  std::vector<float> out(32);
  const auto read = [&](const std::string& name, int64_t first, DType dtype, int64_t elems) {
    return Text(reader->Read(name, first, {dtype, out.data(), elems}));
  };
  EXPECT_THAT(read("v", 0, DType::kF32, 1), HasSubstr("INVALID_ARGUMENT: there is no 'v' in"));
  EXPECT_THAT(read("w", 0, DType::kBF16, 1), HasSubstr("is fp32, but is read as bf16"));
  EXPECT_THAT(read("w", 0, DType::kF32, 13), HasSubstr("has 12 elements, not 13 from 0 on"));
  EXPECT_THAT(read("w", -1, DType::kF32, 1), HasSubstr("not 1 from -1 on"));
  EXPECT_THAT(read("w", 0, DType::kF32, -1), HasSubstr("not -1 from 0 on"));
  EXPECT_THAT(read("w", std::numeric_limits<int64_t>::max(), DType::kF32, 1), HasSubstr("has 12"));
  EXPECT_THAT(read("w", 1, DType::kF32, std::numeric_limits<int64_t>::max()), HasSubstr("has 12"));
  EXPECT_THAT(Text(reader->Read("w", 0, {DType::kF32, nullptr, 1})), HasSubstr("is null"));
  EXPECT_EQ("OK", Text(reader->Read("w", 12, {DType::kF32, nullptr, 0})));
  EXPECT_FALSE(reader->Has("v"));
  EXPECT_TRUE(reader->shape("v").empty());
  EXPECT_THAT(reader->names(), ElementsAre("b", "noise", "w"));
}

TEST(Checkpoint, APartialTensorHasHoles) {
  const TempFolder dir;
  const std::vector<float> values = {1, 2, 3};
  ASSERT_EQ("OK", Text(SaveWith(2, [&](Communicator& comm) {
              const std::vector<StatePiece> pieces = {{.name = "residual",
                                                       .shape = {10},
                                                       .first_elem = 1 + 5 * comm.rank(),
                                                       .data = values.data(),
                                                       .elems = 3,
                                                       .partial = true}};
              return SaveCheckpoint(comm, dir.path(), {.step = 1}, pieces);
            })));
  const auto reader = CheckpointReader::Open(dir.path());
  ASSERT_TRUE(reader.ok()) << Text(reader.status());
  std::vector<float> out(10);
  EXPECT_EQ("OK", Text(reader->Read("residual", 6, {DType::kF32, out.data(), 3})));
  EXPECT_EQ(values, std::vector<float>(out.begin(), out.begin() + 3));
  EXPECT_THAT(Text(reader->Read("residual", 0, {DType::kF32, out.data(), 10})),
              HasSubstr("was saved in part, without element 0"));
  EXPECT_THAT(Text(reader->Read("residual", 1, {DType::kF32, out.data(), 9})),
              HasSubstr("was saved in part, without element 4"));
  EXPECT_THAT(Text(reader->Read("residual", 8, {DType::kF32, out.data(), 2})),
              HasSubstr("was saved in part, without element 9"));
}

TEST(Checkpoint, UserBytesAndNumbersComeBackAsTheyWere) {
  const TempFolder dir;
  std::string user;
  for (int i = 0; i < 512; ++i) user += static_cast<char>(i);
  for (const std::string& bytes : {user, std::string("text \xc3\xa9"), std::string()}) {
    const double scale = 65536.0 * 1.1, mean = 0.1 + 0.2;
    ASSERT_EQ("OK", Text(SaveWith(2, [&](Communicator& comm) {
                const CheckpointMeta meta = {
                    .step = 3, .state = {{"scale", scale}, {"mean", mean}}, .user = bytes};
                return SaveCheckpoint(comm, dir.path(), meta, {});
              })));
    const auto reader = CheckpointReader::Open(dir.path());
    ASSERT_TRUE(reader.ok()) << Text(reader.status());
    EXPECT_EQ(bytes, reader->meta().user);
    EXPECT_EQ(scale, reader->meta().state["scale"].get<double>());
    EXPECT_EQ(mean, reader->meta().state["mean"].get<double>());
    EXPECT_TRUE(reader->names().empty());
    EXPECT_EQ("OK", Text(reader->Verify()));
  }
}

TEST(Checkpoint, AShardIsASafetensorsFile) {
  const TempFolder dir;
  const TensorCase tensor = {"w/0", {2, 3}, DType::kBF16};
  ASSERT_EQ("OK", Text(SaveFrom(1, dir.path(), {tensor}, 5)));
  const auto file = SafetensorsFile::Open(dir / "step-00000005/rank-00000.safetensors");
  ASSERT_TRUE(file.ok()) << Text(file.status());
  EXPECT_EQ("5", file->metadata().at("zpp_step"));
  int64_t elems = 0;
  for (const StoredTensor& stored : file->tensors()) {
    EXPECT_THAT(stored.name, testing::StartsWith("w/0["));
    EXPECT_EQ(DType::kBF16, stored.dtype);
    std::vector<std::byte> got(static_cast<size_t>(stored.size_bytes));
    ASSERT_EQ("OK", Text(file->Read(stored, 0, got)));
    EXPECT_TRUE(got == ValuesOf(tensor, std::stoll(stored.name.substr(4)), stored.elems, 5));
    elems += stored.elems;
  }
  EXPECT_EQ(6, elems);
}

TEST(Checkpoint, ModelsAreComparedByNameAndShape) {
  const std::vector<ModelTensor> one = {{"w", {3, 4}}, {"b", {4}}},
                                 same = {{"b", {4}}, {"w", {3, 4}}};
  const std::vector<ModelTensor> wide = {{"w", {4, 4}}, {"b", {4}}},
                                 more = {{"b", {4}}, {"c", {}}, {"w", {3, 4}}};
  const auto check = [](const auto& saved, const auto& own) {
    return Text(CheckSameModel(ModelFingerprint(saved), ModelFingerprint(own)));
  };
  EXPECT_EQ("OK", check(one, same));
  EXPECT_EQ(
      "INVALID_ARGUMENT: the checkpoint is of another model: 'w' is (3, 4) in it, (4, 4) here",
      check(one, wide));
  EXPECT_THAT(check(one, more), HasSubstr("it has no tensor 'c' ()"));
  EXPECT_THAT(check(more, one), HasSubstr("its tensor 'c' () is not here"));
  EXPECT_THAT(Text(CheckSameModel("one", "other")), HasSubstr("their fingerprints differ"));
  EXPECT_EQ("OK", Text(CheckSameModel("one", "one")));
}

}  // namespace
}  // namespace zpp::test
