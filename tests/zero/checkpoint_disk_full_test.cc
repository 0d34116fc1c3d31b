// A disk that fills up at any moment of a save: every rank gets the same error, and what was saved
// before stays whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "tests/harness/ranks.h"
#include "tests/zero/checkpoint_cases.h"
#include "zero/checkpoint_export.h"

namespace zpp::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string Text(const Status& status) { return status.ToString(); }

constexpr int64_t kPage_bytes = 4096;

// A file system of a few pages, on a folder of its own.
class SmallDisk {
 public:
  explicit SmallDisk(int64_t bytes) {
    const std::string options = "size=" + std::to_string(bytes);
    if (mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, options.c_str()) != 0) error_ = errno;
  }
  ~SmallDisk() {
    if (error_ == 0) umount2(folder_.path().c_str(), MNT_DETACH);
  }
  int error() const { return error_; }
  std::string path() const { return folder_ / "checkpoints"; }
  // Leaves that many bytes, to a page.
  void Fill(int64_t left_bytes) const {
    fs::remove(folder_ / "ballast");
    const auto free = static_cast<int64_t>(fs::space(folder_.path()).available);
    WriteText(folder_ / "ballast", std::string(static_cast<size_t>(free - left_bytes), 'x'));
  }
  void Empty() const { fs::remove(folder_ / "ballast"); }
  int64_t free_bytes() const { return static_cast<int64_t>(fs::space(folder_.path()).available); }

 private:
  TempFolder folder_;
  int error_ = 0;
};

std::vector<TensorCase> Tensors() {
  return {{"w", {1000, 20}, DType::kF32}, {"b", {300}, DType::kBF16}};
}

TEST(CheckpointDiskFull, AtAnyPageOfASave) {
  const SmallDisk disk(int64_t{1} << 20);
  if (disk.error() != 0) {
    GTEST_SKIP() << "probe: cannot mount tmpfs: " << std::strerror(disk.error());
  }
  int full = 0;
  for (int pages = 0;; ++pages) {
    SCOPED_TRACE(std::to_string(pages) + " pages left");
    ASSERT_LT(pages, 200);
    fs::remove_all(disk.path());
    disk.Empty();
    ASSERT_EQ("OK", Text(SaveFrom(2, disk.path(), Tensors(), 1)));
    const auto before = NamesIn(disk.path());
    disk.Fill(pages * kPage_bytes);
    const Status saved = SaveFrom(3, disk.path(), Tensors(), 2);
    if (saved.ok()) break;
    ++full;
    EXPECT_EQ(StatusCode::kResourceExhausted, saved.code()) << Text(saved);
    EXPECT_THAT(saved.message(), testing::ContainsRegex("^rank [012]: .*No space left on device"));
    EXPECT_EQ(before, NamesIn(disk.path()));
    EXPECT_EQ("OK", Text(CheckCheckpoint(disk.path(), Tensors(), 1)));
    EXPECT_GE(disk.free_bytes(), pages * kPage_bytes - kPage_bytes) << "pages are still taken";
  }
  EXPECT_EQ("OK", Text(CheckCheckpoint(disk.path(), Tensors(), 2)));
  EXPECT_GT(full, 20);  // two pages of 80 KB of weights are not enough for any of it
}

// The step that is there already must survive its successor's failure too.
TEST(CheckpointDiskFull, WhileAStepIsReplaced) {
  const SmallDisk disk(int64_t{1} << 20);
  if (disk.error() != 0) {
    GTEST_SKIP() << "probe: cannot mount tmpfs: " << std::strerror(disk.error());
  }
  ASSERT_EQ("OK", Text(SaveFrom(2, disk.path(), Tensors(), 1)));
  for (int pages = 0; pages < 200; ++pages) {
    disk.Fill(pages * kPage_bytes);
    const Status saved = SaveFrom(3, disk.path(), Tensors(), 1);
    EXPECT_EQ("OK", Text(CheckCheckpoint(disk.path(), Tensors(), 1)));
    const auto reader = CheckpointReader::Open(disk.path());
    ASSERT_TRUE(reader.ok()) << Text(reader.status());
    EXPECT_EQ(saved.ok() ? 3 : 2, reader->writers());
    if (saved.ok()) return;
  }
  FAIL() << "never enough space";
}

TEST(CheckpointDiskFull, AnExportLeavesTheOldFile) {
  const SmallDisk disk(int64_t{1} << 20);
  if (disk.error() != 0) {
    GTEST_SKIP() << "probe: cannot mount tmpfs: " << std::strerror(disk.error());
  }
  fs::create_directory(disk.path());
  const std::string path = disk.path() + "/model.safetensors";
  WriteText(path, "old");
  disk.Fill(4 * kPage_bytes);
  const Status saved = SaveWith(2, [&](Communicator& comm) {
    const std::vector<ExportTensor> tensors = {{"w", {1000, 20}}, {"v", {1000, 20}}};
    return ExportSafetensors(comm, path, tensors, [](size_t, Vec out) {
      std::memset(out.data, 1, static_cast<size_t>(out.elems * SizeOf(out.dtype)));
      return Status();
    });
  });
  EXPECT_THAT(Text(saved), HasSubstr("RESOURCE_EXHAUSTED: rank 0: cannot write '" + path));
  EXPECT_EQ("old", ReadText(path));
  EXPECT_EQ(1u, NamesIn(disk.path()).size());
}

// The same without root: the process may not write larger files. Shards are the largest, so they
// fail; the limit is the child's own.
TEST(CheckpointDiskFull, AFileThatMayNotGrow) {
  const TempFolder dir;
  ASSERT_EQ("OK", Text(SaveFrom(1, dir.path(), Tensors(), 1)));
  const auto outcomes = RunProcesses(1, 60, [&](int) -> Result<std::string> {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {20000, 20000};
    ZPP_REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    return Text(SaveFrom(1, dir.path(), Tensors(), 2));
  });
  ASSERT_TRUE(AllOk(outcomes));
  EXPECT_THAT(outcomes[0].value, HasSubstr("RESOURCE_EXHAUSTED: rank 0: cannot write '"));
  EXPECT_THAT(outcomes[0].value, HasSubstr("File too large"));
  EXPECT_THAT(NamesIn(dir.path()), testing::ElementsAre("latest", "step-00000001"));
  EXPECT_EQ("OK", Text(CheckCheckpoint(dir.path(), Tensors(), 1)));
}

}  // namespace
}  // namespace zpp::test
