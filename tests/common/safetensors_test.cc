#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "common/safetensors.h"
#include "common/safetensors_writer.h"

namespace zpp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Bytes = std::span<const std::byte>;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Bytes AsBytes(const std::string& text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

// What Python's package takes a file for, in its own words: struct.unpack("<Q"), json.loads, the
// checks of its reader, slices. Shares nothing with the reader under test.
struct Plain {
  std::map<std::string, std::string> values, types;
  std::map<std::string, std::vector<int64_t>> shapes;
  std::map<std::string, std::string> metadata;
  size_t data_start = 0;
  std::map<std::string, size_t> begins;
};

Plain ReadPlainly(const std::string& file) {
  static const std::map<std::string, size_t> item_bytes = {{"F64", 8}, {"I64", 8},  {"F32", 4},
                                                           {"F16", 2}, {"BF16", 2}, {"U8", 1}};
  Plain plain;
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  plain.data_start = 8 + length;
  EXPECT_EQ(plain.data_start % 8, 0u);
  EXPECT_EQ(file[8], '{');
  const auto header = nlohmann::json::parse(file.substr(8, length));
  std::map<std::pair<size_t, size_t>, std::string> places;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      plain.metadata = entry.get<std::map<std::string, std::string>>();
      continue;
    }
    EXPECT_EQ(entry.size(), 3u);
    const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    plain.types[name] = entry["dtype"];
    plain.shapes[name] = entry["shape"].get<std::vector<int64_t>>();
    plain.values[name] = file.substr(plain.data_start + begin, end - begin);
    plain.begins[name] = begin;
    size_t bytes = item_bytes.at(plain.types[name]);
    EXPECT_EQ((plain.data_start + begin) % bytes, 0u) << name;
    for (const int64_t size : plain.shapes[name]) bytes *= static_cast<size_t>(size);
    EXPECT_EQ(bytes, end - begin) << name;
    if (bytes > 0) places[{begin, end}] = name;
  }
  size_t end = 0;
  for (const auto& [place, name] : places) {
    EXPECT_EQ(place.first, end) << name;
    end = place.second;
  }
  EXPECT_EQ(plain.data_start + end, file.size());
  return plain;
}

class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsTest() { std::filesystem::create_directory(folder_); }
  ~SafetensorsTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name = "x.safetensors") const { return folder_ + "/" + name; }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
  }
  // Refused with one sentence that names the file, which is not there afterwards.
  void ExpectRefused(const std::vector<TensorBytes>& tensors, const std::string& part,
                     const SafetensorsMetadata& metadata = {}) {
    const Status status = WriteSafetensors(Path(), tensors, metadata);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << part;
    EXPECT_THAT(status.message(), HasSubstr(part));
    EXPECT_THAT(status.message(), HasSubstr(Path()));
    EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
    EXPECT_TRUE(Names().empty()) << part;
  }

 private:
  const std::string folder_ = ::testing::TempDir() + "zpp_safetensors_" + std::to_string(getpid());
};

std::string Numbered(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 31 + bytes);
  return text;
}

TEST_F(SafetensorsTest, AnotherReaderFindsWhatWasWritten) {
  const std::string odd = Numbered(3), f32 = Numbered(24), half = Numbered(10), i64 = Numbered(8),
                    brain = Numbered(2), f64 = Numbered(16);
  const SafetensorsMetadata metadata = {{"format", "pt"}, {"step", "17"}, {"ключ\n", "\"\\\t"}};
  const std::vector<TensorBytes> tensors = {
      {{"odd bytes", "U8", {3}}, {AsBytes(odd)}},
      {{"w.0", "F32", {2, 3}}, {AsBytes(f32).first(5), AsBytes(f32).subspan(5)}},
      {{"half", "F16", {5, 1}}, {AsBytes(half)}},
      {{"count", "I64", {}}, {AsBytes(i64)}},
      {{"none", "F32", {4, 0}}, {}},
      {{"brain", "BF16", {1}}, {Bytes(), AsBytes(brain), Bytes()}},
      {{"moments", "F64", {2}}, {AsBytes(f64)}},
  };
  ASSERT_TRUE(WriteSafetensors(Path(), tensors, metadata).ok());
  const Plain plain = ReadPlainly(ReadFile(Path()));
  EXPECT_EQ(plain.metadata, metadata);
  EXPECT_EQ(plain.values, (std::map<std::string, std::string>{{"odd bytes", odd},
                                                              {"w.0", f32},
                                                              {"half", half},
                                                              {"count", i64},
                                                              {"none", ""},
                                                              {"brain", brain},
                                                              {"moments", f64}}));
  EXPECT_EQ(plain.types.at("brain"), "BF16");
  EXPECT_THAT(plain.shapes.at("none"), ElementsAre(4, 0));
  EXPECT_TRUE(plain.shapes.at("count").empty());
  EXPECT_THAT(Names(), ElementsAre("x.safetensors"));
}

TEST_F(SafetensorsTest, OurReaderFindsWhatWasWritten) {
  const std::string f32 = Numbered(400), brain = Numbered(6);
  ASSERT_TRUE(WriteSafetensors(Path(),
                               std::vector<TensorBytes>{{{"b", "BF16", {3}}, {AsBytes(brain)}},
                                                        {{"a", "F32", {100}}, {AsBytes(f32)}}},
                               {{"world_size", "4"}})
                  .ok());
  const Result<SafetensorsFile> file = SafetensorsFile::Open(Path());
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->metadata(), (SafetensorsMetadata{{"world_size", "4"}}));
  ASSERT_EQ(file->tensors().size(), 2u);
  const StoredTensor* a = file->Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::kF32);
  EXPECT_EQ(a->elems, 100);
  EXPECT_EQ(a->size_bytes, 400);
  std::string part(40, '\0');
  ASSERT_TRUE(file->Read(*a, 7, std::as_writable_bytes(std::span<char>(part))).ok());
  EXPECT_EQ(part, f32.substr(7, 40));
  EXPECT_EQ(file->Find("A"), nullptr);
  EXPECT_EQ(file->Read(*a, 361, std::as_writable_bytes(std::span<char>(part))).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(file->Read(*a, -1, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(file->Read(*a, 400, {}).ok());
}

TEST_F(SafetensorsTest, FilesWithoutTensorsOrBytes) {
  ASSERT_TRUE(WriteSafetensors(Path("empty"), {}).ok());
  EXPECT_TRUE(ReadPlainly(ReadFile(Path("empty"))).values.empty());
  EXPECT_TRUE(SafetensorsFile::Open(Path("empty")).ok());
  ASSERT_TRUE(
      WriteSafetensors(Path("none"), std::vector<TensorBytes>{{{"n", "F32", {0}}, {}}}).ok());
  EXPECT_EQ(ReadPlainly(ReadFile(Path("none"))).values.size(), 1u);
  EXPECT_EQ(SafetensorsFile::Open(Path("none"))->tensors().size(), 1u);
}

// Whatever the length of the names, the data begins where the format wants it.
TEST_F(SafetensorsTest, EveryHeaderLengthIsPadded) {
  for (size_t length = 0; length < 17; ++length) {
    const std::string value = Numbered(8);
    ASSERT_TRUE(
        WriteSafetensors(Path(), std::vector<TensorBytes>{{{std::string(length, 'n'), "F64", {1}},
                                                           {AsBytes(value)}}})
            .ok());
    EXPECT_EQ(ReadPlainly(ReadFile(Path())).values.begin()->second, value) << length;
    EXPECT_TRUE(SafetensorsFile::Open(Path()).ok());
  }
}

TEST_F(SafetensorsTest, PiecesOfDifferentTensorsMayTakeTurnsAndThreads) {
  const std::vector<TensorToStore> tensors = {{"a", "U8", {100'000}}, {"b", "F32", {25'000}}};
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(Path(), tensors, {});
  ASSERT_TRUE(writer.ok());
  const std::string values[] = {Numbered(100'000), std::string(100'000, 'b')};
  const auto append = [&](size_t index) {
    for (size_t at = 0; at < values[index].size(); at += 1000) {
      ASSERT_TRUE(writer->Append(index, AsBytes(values[index]).subspan(at, 1000)).ok());
    }
  };
  std::thread other(append, 1);
  append(0);
  other.join();
  EXPECT_TRUE(Names() != std::vector<std::string>{"x.safetensors"}) << "there before Commit()";
  ASSERT_TRUE(writer->Commit().ok());
  const Plain plain = ReadPlainly(ReadFile(Path()));
  EXPECT_EQ(plain.values.at("a"), values[0]);
  EXPECT_EQ(plain.values.at("b"), values[1]);
}

TEST_F(SafetensorsTest, RefusesWhatNoReaderWouldTake) {
  const std::string four = Numbered(4);
  const auto one = [&](const std::string& name, const std::string& type,
                       const std::vector<int64_t>& shape) {
    return TensorBytes{{name, type, shape}, {AsBytes(four)}};
  };
  ExpectRefused({one("w", "F32", {1}), one("w", "F32", {1})}, "'w' is there twice");
  ExpectRefused({one("__metadata__", "F32", {1})}, "has the name of the metadata");
  ExpectRefused({one("w", "float32", {1})}, "cannot be stored as 'float32'");
  ExpectRefused({one("w", "F4", {8})}, "cannot be stored as 'F4'");
  ExpectRefused({one("w", "F32", {-1})}, "negative size");
  ExpectRefused({one("w", "F32", {int64_t{1} << 40, int64_t{1} << 40})}, "overflows");
  ExpectRefused({one("w", "F32", {0, -4})}, "negative size");
  ExpectRefused({one("w", "U8", {int64_t{1} << 62}), one("v", "U8", {int64_t{1} << 62})},
                "more bytes than a file can hold");
  ExpectRefused({one("\xff", "F32", {1})}, "not UTF-8");
  ExpectRefused({one("w", "F32", {1})}, "not UTF-8", {{"k", "\xc3"}});
  ExpectRefused({one("w", "F32", {2})}, "'w' lacks 4 bytes");
  ExpectRefused({one("w", "F16", {1})}, "'w' lacks 2 bytes, not 4");
}

TEST_F(SafetensorsTest, AbandonedWritersLeaveNothingAndChangeNothing) {
  std::ofstream(Path()) << "old";
  {
    const std::vector<TensorToStore> tensors = {{"a", "U8", {4}}};
    Result<SafetensorsWriter> writer = SafetensorsWriter::Create(Path(), tensors, {});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->Append(0, AsBytes("abc")).ok());
    EXPECT_EQ(writer->Append(1, AsBytes("abc")).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(writer->Commit().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(Names(), ElementsAre("x.safetensors"));
  EXPECT_EQ(ReadFile(Path()), "old");
}

// A limit on the size of files stands for a full disk: both end in a short write.
TEST_F(SafetensorsTest, AFullDiskIsAnErrorAndTheOldFileStaysWhole) {
  std::ofstream(Path()) << "old";
  struct rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto on_signal = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit = {1 << 16, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string big(1 << 20, 'x');
  const Status status =
      WriteSafetensors(Path(), std::vector<TensorBytes>{{{"w", "U8", {1 << 20}}, {AsBytes(big)}}});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, on_signal);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("what was there is unchanged"));
  EXPECT_THAT(status.message(), HasSubstr(Path()));
  EXPECT_THAT(Names(), ElementsAre("x.safetensors"));
  EXPECT_EQ(ReadFile(Path()), "old");
}

}  // namespace
}  // namespace zpp
