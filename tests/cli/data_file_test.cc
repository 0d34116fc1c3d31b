#include "cli/data_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>

namespace zpp::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string LittleEndian(uint64_t length) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
  return bytes;
}

std::string Safetensors(const std::string& header, const std::string& data) {
  return LittleEndian(header.size()) + header + data;
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string Entry(const std::string& name, const std::string& type, const std::string& shape,
                  const std::string& offsets) {
  return '"' + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}

class DataFileTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const std::string& path : paths_) std::remove(path.c_str());
  }
  std::string Write(const std::string& name, const std::string& bytes) {
    paths_.push_back(::testing::TempDir() + "zpp_data_" + std::to_string(getpid()) + name);
    std::ofstream(paths_.back(), std::ios::binary) << bytes;
    return paths_.back();
  }
  Result<DataFile> Open(const std::string& bytes) {
    return DataFile::Open(Write(".safetensors", bytes), DType::kF32);
  }
  // One clear sentence, no crash.
  void ExpectRefused(const std::string& bytes, const std::string& part) {
    const Result<DataFile> file = Open(bytes);
    ASSERT_FALSE(file.ok()) << part;
    EXPECT_EQ(file.status().code(), StatusCode::kDataLoss) << part;
    EXPECT_THAT(file.status().message(), HasSubstr(part));
    EXPECT_THAT(file.status().message(), HasSubstr(paths_.back()));
    EXPECT_THAT(file.status().message(), Not(HasSubstr("\n")));
    EXPECT_LT(file.status().message().size(), 350u);
  }
  void ExpectHeaderRefused(const std::string& header, const std::string& part) {
    ExpectRefused(Safetensors(header, std::string(16, 'x')), part);
  }

 private:
  std::vector<std::string> paths_;
};

template <typename T>
std::vector<T> Fill(const DataFile& file, int64_t first, DType dtype, size_t elems) {
  std::vector<T> values(elems + 1, T{77});  // the last one must stay
  const Status filled = file.Fill(
      first, dtype, std::as_writable_bytes(std::span<T>(values)).first(elems * sizeof(T)));
  EXPECT_TRUE(filled.ok()) << filled.ToString();
  EXPECT_EQ(values.back(), T{77});
  values.pop_back();
  return values;
}

TEST_F(DataFileTest, RawValuesKeepTheirBits) {
  const std::vector<uint32_t> bits = {0x3f800000, 0x7fa00001, 0x80000000, 0x00000001};
  const Result<DataFile> file = DataFile::Open(Write(".raw", Bytes(bits)), DType::kF32);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->elems(), 4);
  EXPECT_EQ(Fill<uint32_t>(*file, 0, DType::kF32, 4), bits);
  EXPECT_THAT(file->Notes(), ElementsAre(HasSubstr("4 raw fp32 values")));
}

TEST_F(DataFileTest, RawValuesAreConverted) {
  const std::vector<float> values = {1.0f, -2.5f, 0.0f};
  const Result<DataFile> file = DataFile::Open(Write(".bin", Bytes(values)), DType::kF32);
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(Fill<uint16_t>(*file, 0, DType::kF16, 3), ElementsAre(0x3c00, 0xc100, 0));
  EXPECT_THAT(Fill<uint16_t>(*file, 0, DType::kBF16, 3), ElementsAre(0x3f80, 0xc020, 0));
}

TEST_F(DataFileTest, RawHalfTypesWiden) {
  const std::string path = Write(".raw", Bytes<uint16_t>({0x3c00, 0xc100}));
  const Result<DataFile> half = DataFile::Open(path, DType::kF16);
  ASSERT_TRUE(half.ok());
  EXPECT_THAT(Fill<float>(*half, 0, DType::kF32, 2), ElementsAre(1.0f, -2.5f));
  const Result<DataFile> brain = DataFile::Open(path, DType::kBF16);
  ASSERT_TRUE(brain.ok());
  EXPECT_THAT(Fill<float>(*brain, 0, DType::kF32, 2), ElementsAre(0x1p-7f, -8.0f));
}

TEST_F(DataFileTest, StartsAgainAfterTheLastValue) {
  const Result<DataFile> file = DataFile::Open(Write(".raw", Bytes<float>({1, 2, 3})), DType::kF32);
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(Fill<float>(*file, 2, DType::kF32, 8), ElementsAre(3, 1, 2, 3, 1, 2, 3, 1));
  EXPECT_THAT(Fill<float>(*file, std::numeric_limits<int64_t>::max(), DType::kF32, 1),
              ElementsAre(2));  // 2^63 - 1 = 1 modulo 3
  EXPECT_TRUE(Fill<float>(*file, 0, DType::kF32, 0).empty());
}

// More than one piece of the reader, in the middle of the file.
TEST_F(DataFileTest, LongRunsComeInOrder) {
  std::vector<float> values(100'003);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 251);
  const Result<DataFile> file = DataFile::Open(Write(".raw", Bytes(values)), DType::kF32);
  ASSERT_TRUE(file.ok());
  const auto brain = Fill<uint16_t>(*file, 5, DType::kBF16, 99'000);
  for (size_t i = 0; i < brain.size(); ++i) {
    const uint32_t word = static_cast<uint32_t>(brain[i]) << 16;
    float value;
    std::memcpy(&value, &word, sizeof(value));
    ASSERT_EQ(value, values[i + 5]) << i;
  }
}

TEST_F(DataFileTest, TensorsFollowEachOtherAndIntegersAreLeftOut) {
  const std::string header =
      '{' + Entry("z_first", "F32", "[2]", "[0,8]") + ',' + Entry("ids", "I64", "[1]", "[8,16]") +
      ',' + Entry("half", "F16", "[1,2]", "[16,20]") + ',' +
      Entry("a_last", "BF16", "[]", "[20,22]") + ',' + Entry("nothing", "F32", "[0,5]", "[20,20]") +
      R"(,"__metadata__":{"format":"pt"}}   )";
  const std::string data = Bytes<float>({1, -2.5}) + Bytes<int64_t>({7}) +
                           Bytes<uint16_t>({0x3c00, 0xc100}) + Bytes<uint16_t>({0x4040});
  const Result<DataFile> file = Open(Safetensors(header, data));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->elems(), 5);
  EXPECT_THAT(Fill<float>(*file, 0, DType::kF32, 6), ElementsAre(1, -2.5, 1, -2.5, 3, 1));
  ASSERT_EQ(file->taken().size(), 4u);
  EXPECT_EQ(file->taken()[0].name, "z_first");
  EXPECT_EQ(file->taken()[1].name, "half");
  EXPECT_THAT(file->taken()[1].shape, ElementsAre(1, 2));
  EXPECT_EQ(file->taken()[2].name, "nothing");
  EXPECT_EQ(file->taken()[3].name, "a_last");
  ASSERT_EQ(file->left_out().size(), 1u);
  EXPECT_THAT(file->Notes(), ElementsAre(HasSubstr("4 tensors, 5 values"),
                                         "left out 1 tensor not of fp32, fp16 or bf16: ids (I64)"));
}

TEST_F(DataFileTest, ManyTensorsLeftOutGiveOneShortLine) {
  std::string header = '{' + Entry("w", "F32", "[1]", "[0,4]");
  for (int i = 0; i < 20; ++i) {
    header += "," + Entry("i" + std::to_string(i), "U8", "[0]", "[4,4]");
  }
  const Result<DataFile> file = Open(Safetensors(header + "}", Bytes<float>({1})));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_EQ(file->Notes().size(), 2u);
  EXPECT_THAT(file->Notes()[1], HasSubstr("left out 20 tensors"));
  EXPECT_THAT(file->Notes()[1], HasSubstr("i15 (U8), ..."));
}

TEST_F(DataFileTest, RefusesWhatIsNotAFile) {
  EXPECT_EQ(DataFile::Open("/no/such/file", DType::kF32).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(DataFile::Open("/tmp", DType::kF32).status().message(),
              HasSubstr("not a regular file"));
  const std::string pipe_path = ::testing::TempDir() + "zpp_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(pipe_path.c_str(), 0600), 0);
  EXPECT_THAT(DataFile::Open(pipe_path, DType::kF32).status().message(),
              HasSubstr("not a regular file"));
  std::remove(pipe_path.c_str());
}

TEST_F(DataFileTest, RefusesRawFilesOfOddSizeOrNoValues) {
  EXPECT_THAT(DataFile::Open(Write(".raw", "12345"), DType::kF32).status().message(),
              HasSubstr("5 bytes are not a whole number of fp32 values"));
  EXPECT_THAT(DataFile::Open(Write(".raw", ""), DType::kF16).status().message(),
              HasSubstr("holds no"));
  EXPECT_EQ(DataFile::Open(Write(".raw", "1234"), DType::kByte).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(DataFileTest, RefusesFillsThatAreNotWholeElements) {
  const Result<DataFile> file = DataFile::Open(Write(".raw", "1234"), DType::kF32);
  ASSERT_TRUE(file.ok());
  std::vector<std::byte> out(6);
  EXPECT_FALSE(file->Fill(0, DType::kF32, out).ok());
  EXPECT_FALSE(file->Fill(-1, DType::kF16, out).ok());
  EXPECT_FALSE(file->Fill(0, DType::kByte, out).ok());
}

TEST_F(DataFileTest, AFileThatShrinksIsAnError) {
  const std::string path = Write(".raw", std::string(1 << 16, 'x'));
  const Result<DataFile> file = DataFile::Open(path, DType::kF32);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(path.c_str(), 100), 0);
  std::vector<std::byte> out(1 << 16);
  const Status filled = file->Fill(0, DType::kF32, out);
  EXPECT_EQ(filled.code(), StatusCode::kDataLoss);
  EXPECT_THAT(filled.message(), HasSubstr("the file ends at byte 100"));
}

TEST_F(DataFileTest, RefusesEveryTruncation) {
  const std::string whole =
      Safetensors('{' + Entry("w", "F32", "[2]", "[0,8]") + "}", Bytes<float>({1, 2}));
  ASSERT_TRUE(Open(whole).ok());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(Open(whole.substr(0, length)).ok()) << length;
  }
  ExpectRefused(whole + "x", "end at byte 8 of 9");
}

TEST_F(DataFileTest, RefusesLyingHeaderLengths) {
  ExpectRefused("", "at least 8 bytes, this one has 0");
  ExpectRefused("1234567", "at least 8 bytes, this one has 7");
  ExpectRefused(LittleEndian(3) + "{}", "claims 3 bytes, the file has 10");
  ExpectRefused(LittleEndian(~uint64_t{0}) + "{}", "claims 18446744073709551615 bytes");
  ExpectRefused(LittleEndian(uint64_t{1} << 63) + "{}", "claims 9223372036854775808 bytes");
  ExpectRefused(LittleEndian(0), "not valid JSON");
}

TEST_F(DataFileTest, RefusesAHeaderTooLongToRead) {
  const std::string path = Write(".safetensors", LittleEndian(200'000'000) + "{}");
  ASSERT_EQ(truncate(path.c_str(), 300'000'000), 0);  // sparse
  EXPECT_THAT(DataFile::Open(path, DType::kF32).status().message(), HasSubstr("more than the"));
}

TEST_F(DataFileTest, RefusesLyingOffsets) {
  const auto header = [](const std::string& offsets) {
    return '{' + Entry("w", "F32", "[4]", offsets) + "}";
  };
  ExpectHeaderRefused(header("[0,20]"), "ends at byte 20 of 16");
  ExpectHeaderRefused(header("[16,0]"), "decrease");
  ExpectHeaderRefused(header("[0,12]"), "has 12 bytes, but 4 elements of F32");
  ExpectHeaderRefused(header("[-16,0]"), "no data_offsets");
  ExpectHeaderRefused(header("[0,16.0]"), "no data_offsets");
  ExpectHeaderRefused(header("[0]"), "no data_offsets");
  ExpectHeaderRefused(header("[0,8,16]"), "no data_offsets");
  ExpectHeaderRefused(header("16"), "no data_offsets");
  ExpectHeaderRefused(header("[0,18446744073709551615]"), "no data_offsets");
  ExpectHeaderRefused(header("[9223372036854775807,9223372036854775807]"), "ends at byte 9223");
}

TEST_F(DataFileTest, RefusesOverlapsAndHoles) {
  const auto two = [](const std::string& a, const std::string& b) {
    return '{' + Entry("a", "F32", "[2]", a) + "," + Entry("b", "F32", "[2]", b) + "}";
  };
  ExpectHeaderRefused(two("[0,8]", "[4,12]"), "tensor 'b' overlaps");
  ExpectHeaderRefused(two("[0,8]", "[0,8]"), "overlaps");
  ExpectHeaderRefused('{' + Entry("a", "F32", "[2]", "[8,16]") + "}", "a hole after byte 0");
  ExpectHeaderRefused('{' + Entry("a", "F32", "[2]", "[0,8]") + "}", "end at byte 8 of 16");
  ExpectHeaderRefused(
      '{' + Entry("a", "F32", "[4]", "[0,16]") + "," + Entry("b", "F32", "[0]", "[8,8]") + "}",
      "tensor 'b' overlaps");
}

TEST_F(DataFileTest, RefusesShapesThatCannotBe) {
  const auto header = [](const std::string& shape) {
    return '{' + Entry("w", "F32", shape, "[0,16]") + "}";
  };
  ExpectHeaderRefused(header("[5]"), "has 16 bytes, but 5 elements");
  ExpectHeaderRefused(header("[0]"), "has 16 bytes, but 0 elements");
  ExpectHeaderRefused(header("[-4]"), "not a list of sizes");
  ExpectHeaderRefused(header("[4.0]"), "not a list of sizes");
  ExpectHeaderRefused(header("[[4]]"), "not a list of sizes");
  ExpectHeaderRefused(header("4"), "no shape");
  ExpectHeaderRefused(header("[4294967296,4294967296]"), "elements overflows");
  ExpectHeaderRefused(header("[4611686018427387904]"), "bytes overflows");
  // 2^64 + 4 elements: 4 after wrapping around.
  ExpectHeaderRefused(header("[4,4611686018427387905]"), "elements overflows");
  ExpectHeaderRefused('{' + Entry("w", "F4", "[31]", "[0,16]") + "}", "31 elements of F4");
}

TEST_F(DataFileTest, RefusesHeadersOfTheWrongKind) {
  ExpectHeaderRefused("[]", "not a JSON object");
  ExpectHeaderRefused("{", "not valid JSON");
  ExpectHeaderRefused("{}x", "not valid JSON");
  ExpectHeaderRefused("{}", "end at byte 0 of 16");
  ExpectHeaderRefused(R"({"w":3})", "not described by an object");
  ExpectHeaderRefused(R"({"w":{"shape":[4],"data_offsets":[0,16]}})", "has no dtype");
  ExpectHeaderRefused(R"({"w":{"dtype":"F32","data_offsets":[0,16]}})", "has no shape");
  ExpectHeaderRefused(R"({"w":{"dtype":"F32","shape":[4]}})", "no data_offsets");
  ExpectHeaderRefused('{' + Entry("w", "Q3", "[4]", "[0,16]") + "}", "unknown dtype 'Q3'");
  ExpectHeaderRefused(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"x":1}})",
                      "unknown key 'x'");
  ExpectHeaderRefused(R"({"__metadata__":[]})", "__metadata__");
  ExpectHeaderRefused(R"({"__metadata__":{"a":1}})", "__metadata__");
  ExpectHeaderRefused(std::string(1000, '['), "nested deeper");
  const std::string twice = Entry("w", "F32", "[4]", "[0,16]");
  ExpectHeaderRefused('{' + twice + "," + twice + "}", "key 'w' twice");
  ExpectHeaderRefused('{' + Entry("bad\\u0000\\nname", "F32", "[5]", "[0,16]") + "}", "bad??name");
}

TEST_F(DataFileTest, AFileOfIntegersHasNoValues) {
  const Result<DataFile> file =
      Open(Safetensors('{' + Entry("i", "I32", "[1]", "[0,4]") + "}", "1234"));
  EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(file.status().message(), HasSubstr("holds no fp32, fp16 or bf16 values"));
}

}  // namespace
}  // namespace zpp::cli
