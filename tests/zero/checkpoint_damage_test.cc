// Every kind of damage is refused, in one sentence that names the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/zero/checkpoint_cases.h"
#include "zero/internal/checkpoint_manifest.h"

namespace zpp::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string Text(const Status& status) { return status.ToString(); }

// Open and read every byte.
Status ReadAll(const std::string& path) {
  ZPP_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(path));
  return reader.Verify();
}

class CheckpointDamage : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ("OK", Text(SaveFrom(3, dir_.path(), FewTensors(), 5)));
    ASSERT_EQ("OK", Text(ReadAll(dir_.path())));
  }
  std::string Step(const std::string& name) const { return dir_ / ("step-00000005/" + name); }
  std::string Shard(int rank) const {
    return Step("rank-0000" + std::to_string(rank) + ".safetensors");
  }
  std::string Manifest() const { return Step("manifest.json"); }
  // What Open says of it now.
  std::string Opened() const { return Text(CheckpointReader::Open(dir_.path()).status()); }
  void EditManifest(const std::string& from, const std::string& to) const {
    std::string text = ReadText(Manifest());
    const size_t at = text.find(from);
    ASSERT_NE(text.npos, at) << from;
    WriteText(Manifest(), internal::Seal(text.replace(at, from.size(), to)));
  }

  const TempFolder dir_;
};

TEST_F(CheckpointDamage, AnyBitOfAShard) {
  for (int rank = 0; rank < 3; ++rank) {
    const std::string whole = ReadText(Shard(rank));
    for (size_t i = 0; i < whole.size(); ++i) {
      std::string flipped = whole;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << (i % 8)));
      WriteText(Shard(rank), flipped);
      const Status status = ReadAll(dir_.path());
      ASSERT_EQ(StatusCode::kDataLoss, status.code()) << "byte " << i << ": " << Text(status);
      ASSERT_THAT(status.message(), HasSubstr(Shard(rank))) << "byte " << i;
    }
    WriteText(Shard(rank), whole);
  }
  EXPECT_EQ("OK", Text(ReadAll(dir_.path())));
}

TEST_F(CheckpointDamage, ATruncatedShardOfAnyLength) {
  const std::string whole = ReadText(Shard(1));
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    WriteText(Shard(1), whole.substr(0, bytes));
    ASSERT_THAT(Opened(), HasSubstr("DATA_LOSS: '" + Shard(1) + "' has " + std::to_string(bytes) +
                                    " bytes, but " + std::to_string(whole.size()) + " were saved"));
  }
  WriteText(Shard(1), whole + "x");
  EXPECT_THAT(Opened(), HasSubstr(std::to_string(whole.size()) + " were saved"));
}

TEST_F(CheckpointDamage, ShardsThatChangedPlaces) {
  fs::rename(Shard(0), Step("aside"));
  fs::rename(Shard(2), Shard(0));
  fs::rename(Step("aside"), Shard(2));
  EXPECT_EQ(
      "DATA_LOSS: '" + Shard(0) +
          "' is the shard of rank 2 of 3 at step 5 where that of rank 0 of 3 at step 5 belongs",
      Opened());
}

TEST_F(CheckpointDamage, AShardOfAnotherSave) {
  const TempFolder other;
  ASSERT_EQ("OK", Text(SaveFrom(3, other.path(), FewTensors(), 5)));
  fs::copy_file(other / "step-00000005/rank-00001.safetensors", Shard(1),
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(Opened(), HasSubstr("DATA_LOSS: '" + Shard(1) +
                                  "' is the shard of rank 1 of 3 at step 5, saved by another job "
                                  "or at another time"));
}

TEST_F(CheckpointDamage, TheManifestOfAnotherSave) {
  const TempFolder other;
  ASSERT_EQ("OK", Text(SaveFrom(3, other.path(), FewTensors(), 5)));
  fs::copy_file(other / "step-00000005/manifest.json", Manifest(),
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(Opened(), HasSubstr("DATA_LOSS: '" + Shard(0) + "' is the shard of rank 0 of 3"));
}

TEST_F(CheckpointDamage, AFileThatIsNotASafetensorsFile) {
  const std::string whole = ReadText(Shard(1));
  WriteText(Shard(1), std::string(whole.size(), 'x'));
  EXPECT_THAT(Opened(), HasSubstr("DATA_LOSS: '" + Shard(1) + "' is damaged: "));
}

TEST_F(CheckpointDamage, AMissingShard) {
  fs::remove(Shard(2));
  EXPECT_THAT(Opened(), HasSubstr("DATA_LOSS: a shard of the checkpoint is missing: cannot open '" +
                                  Shard(2)));
}

TEST_F(CheckpointDamage, AShardThatVanishesWhileItIsRead) {
  const auto reader = CheckpointReader::Open(dir_.path());
  ASSERT_TRUE(reader.ok());
  fs::resize_file(Shard(1), 9);
  EXPECT_THAT(Text(reader->Verify()), HasSubstr(Shard(1)));
  std::vector<std::byte> out(9);
  std::vector<float> w(12);
  const Status bytes = reader->Read("noise", 0, {DType::kByte, out.data(), 9});
  const Status floats = reader->Read("w", 0, {DType::kF32, w.data(), 12});
  EXPECT_THAT(Text(bytes) + Text(floats), HasSubstr("DATA_LOSS: '" + Shard(1)));
}

TEST_F(CheckpointDamage, AMissingManifest) {
  fs::remove(Manifest());
  EXPECT_THAT(Opened(), HasSubstr("cannot open '" + Manifest() + "'"));
  EXPECT_THAT(Text(CheckpointReader::Open(dir_ / "step-00000005").status()),
              HasSubstr("NOT_FOUND: '" + dir_.path() + "/step-00000005' holds no checkpoint"));
}

TEST_F(CheckpointDamage, AnyBitOfTheManifest) {
  const std::string whole = ReadText(Manifest());
  for (size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = whole;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      const auto parsed = internal::ParseManifest(flipped);
      ASSERT_FALSE(parsed.ok()) << "byte " << i << " bit " << bit;
    }
  }
}

TEST_F(CheckpointDamage, ATruncatedManifestOfAnyLength) {
  const std::string whole = ReadText(Manifest());
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    WriteText(Manifest(), whole.substr(0, bytes));
    ASSERT_THAT(Opened(), HasSubstr("DATA_LOSS: '" + Manifest() + "': ")) << bytes;
  }
}

TEST_F(CheckpointDamage, ANewerFormat) {
  EditManifest("\"version\":1", "\"version\":2");
  EXPECT_THAT(Opened(), HasSubstr("UNIMPLEMENTED: '" + Manifest() +
                                  "': format version 2, but this zpp reads version 1"));
}

TEST_F(CheckpointDamage, JsonThatIsSomethingElse) {
  for (const char* text : {"{}", "[]", "1", "{\"format\":\"pt\"}"}) {
    WriteText(Manifest(), text);
    EXPECT_THAT(Opened(), HasSubstr("not the manifest of a zpp checkpoint")) << text;
  }
  WriteText(Manifest(), "");
  EXPECT_THAT(Opened(), HasSubstr("not valid JSON"));
}

// A checksum holds, but what it covers contradicts itself: a writer that is wrong.
TEST_F(CheckpointDamage, AManifestThatContradictsItself) {
  struct Edit {
    const char *from, *to, *sentence;
  };
  const std::string whole = ReadText(Manifest());
  for (const Edit& edit : {
           Edit{"\"shape\":[3,4]", "\"shape\":[3,5]",
                "no rank owns elements 12 to 14 of 'w' (3, 5)"},
           Edit{"\"shape\":[3,4]", "\"shape\":[3,-4]", "the shape of tensor 'w' is not a count"},
           Edit{"\"shape\":[3,4]", "\"shape\":[4294967296,4294967296]", "whose size overflows"},
           Edit{"\"dtype\":\"fp32\"", "\"dtype\":\"fp31\"", "has the unknown type 'fp31'"},
           Edit{"\"file\":\"rank-00000", "\"file\":\"../rank-00000", "leads elsewhere"},
           Edit{"\"step\":5,\"tensors\"", "\"step\":-5,\"tensors\"",
                "'step' of the manifest is not a count"},
           Edit{"\"chunk_bytes\":1048576", "\"chunk_bytes\":0",
                "'chunk_bytes' is not in 1 to 64 MiB"},
           Edit{"\"id\":", "\"ix\":", "the manifest has no 'id'"},
           Edit{"\"shards\":[", "\"shards\":[],\"sharps\":[", "the manifest has no shards"},
           Edit{"\"user\":", "\"user_hex\":", "'user_hex' is not a row of hex bytes"},
       }) {
    EditManifest(edit.from, edit.to);
    EXPECT_THAT(Opened(), HasSubstr("DATA_LOSS: '" + Manifest() + "': ")) << edit.to;
    EXPECT_THAT(Opened(), HasSubstr(edit.sentence)) << edit.to;
    WriteText(Manifest(), whole);
  }
}

}  // namespace
}  // namespace zpp::test
