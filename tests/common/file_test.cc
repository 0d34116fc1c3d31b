#include "common/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace zpp {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  FileTest() { fs::create_directory(folder_); }
  ~FileTest() override { fs::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  int64_t Count() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }
  static std::string Content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static Status Write(AsideFile* file, const std::string& text) {
    return file->WriteAt(0, std::as_bytes(std::span<const char>(text.data(), text.size())));
  }

 private:
  const std::string folder_ = ::testing::TempDir() + "zpp_file_" + std::to_string(getpid());
};

TEST_F(FileTest, ReadsAnyPartAndNamesTheEnd) {
  std::ofstream(Path("f")) << "0123456789";
  const Result<InputFile> file = InputFile::Open(Path("f"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->size_bytes(), 10);
  std::array<char, 4> part = {};
  const auto out = std::as_writable_bytes(std::span<char>(part));
  ASSERT_TRUE(file->ReadAt(3, out).ok());
  EXPECT_EQ(std::string(part.data(), 4), "3456");
  EXPECT_TRUE(file->ReadAt(100, {}).ok());
  const Status beyond = file->ReadAt(8, out);
  EXPECT_EQ(beyond.code(), StatusCode::kDataLoss);
  EXPECT_THAT(beyond.message(), HasSubstr(Path("f") + "': the file ends at byte 10"));
}

TEST_F(FileTest, ReadsOnlyRegularFiles) {
  EXPECT_EQ(InputFile::Open(Path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(InputFile::Open(Path("")).status().code(), StatusCode::kInvalidArgument);
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(InputFile::Open(Path("pipe")).status().message(), HasSubstr("not a regular file"));
}

TEST_F(FileTest, AppearsInCommitWithTheRightsOfANewFile) {
  Result<AsideFile> file = AsideFile::Create(Path("f"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(Write(&*file, "new").ok());
  EXPECT_FALSE(fs::exists(Path("f")));
  AsideFile moved = *std::move(file);
  ASSERT_TRUE(moved.Commit().ok());
  EXPECT_EQ(Content(Path("f")), "new");
  std::ofstream(Path("plain")) << "x";
  EXPECT_EQ(fs::status(Path("f")).permissions(), fs::status(Path("plain")).permissions());
  EXPECT_EQ(Count(), 2);
}

TEST_F(FileTest, WithoutCommitTheOldFileStays) {
  std::ofstream(Path("f")) << "old";
  {
    Result<AsideFile> file = AsideFile::Create(Path("f"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(Write(&*file, "new and longer").ok());
  }
  EXPECT_EQ(Content(Path("f")), "old");
  EXPECT_EQ(Count(), 1);
}

TEST_F(FileTest, TwoWritersOfOneNameDoNotMix) {
  Result<AsideFile> first = AsideFile::Create(Path("f")), second = AsideFile::Create(Path("f"));
  ASSERT_TRUE(Write(&*first, "first, longer").ok() && Write(&*second, "second").ok());
  ASSERT_TRUE(first->Commit().ok());
  EXPECT_EQ(Content(Path("f")), "first, longer");
  ASSERT_TRUE(second->Commit().ok());
  EXPECT_EQ(Content(Path("f")), "second");
}

TEST_F(FileTest, ALinkStaysALink) {
  std::ofstream(Path("f")) << "old";
  fs::create_symlink("f", Path("link"));
  Result<AsideFile> file = AsideFile::Create(Path("link"));
  ASSERT_TRUE(file.ok() && Write(&*file, "new").ok() && file->Commit().ok());
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(Content(Path("f")), "new");
}

// A device that is renamed over is gone for everybody on the machine.
TEST_F(FileTest, NothingButRegularFilesIsReplaced) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  for (const std::string& path : {std::string("/dev/null"), Path("pipe"), Path("")}) {
    const Result<AsideFile> file = AsideFile::Create(path);
    EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(file.status().message(), HasSubstr("'" + path + "'"));
    EXPECT_FALSE(CheckWritable(path).ok());
  }
}

TEST_F(FileTest, AMissingFolderIsNamed) {
  const Result<AsideFile> file = AsideFile::Create(Path("no/f"));
  EXPECT_EQ(file.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(file.status().message(), HasSubstr("folder '" + Path("no") + "'"));
}

}  // namespace
}  // namespace zpp
