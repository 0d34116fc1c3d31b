// Any bytes either are refused with one sentence or give values that can all be read.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/data_file.h"
#include "tests/fuzz/check.h"

namespace zpp::cli {
namespace {

// The input as a file in memory, under a name that ends as the reader wants it.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    const std::string process = std::to_string(getpid());
    const std::string target = "/proc/" + process + "/fd/" + std::to_string(fd_);
    path_ = std::filesystem::temp_directory_path() / ("zpp_fuzz_" + process + ".safetensors");
    ZPP_FUZZ_CHECK(fd_ >= 0 && symlink(target.c_str(), path_.c_str()) == 0);
    ZPP_FUZZ_CHECK(write(fd_, data, size) == static_cast<ssize_t>(size));
  }
  ~MemoryFile() {
    unlink(path_.c_str());
    close(fd_);
  }
  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

int64_t Elems(const std::vector<StoredTensor>& tensors) {
  int64_t elems = 0;
  for (const StoredTensor& tensor : tensors) elems += tensor.elems;
  return elems;
}

void CheckValues(const DataFile& file, int64_t file_bytes) {
  ZPP_FUZZ_CHECK(file.elems() == Elems(file.taken()));
  ZPP_FUZZ_CHECK(file.elems() > 0 && file.elems() <= file_bytes);
  ZPP_FUZZ_CHECK(!file.Notes().empty());
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    // Twice the file and one more: the reader starts again at the end.
    const int64_t elems = std::min<int64_t>(2 * file.elems() + 1, 4096);
    std::vector<std::byte> values(static_cast<size_t>(elems * SizeOf(dtype)));
    ZPP_FUZZ_CHECK(file.Fill(0, dtype, values).ok());
    ZPP_FUZZ_CHECK(file.Fill(file.elems() - 1, dtype, values).ok());
  }
}

}  // namespace
}  // namespace zpp::cli

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const zpp::cli::MemoryFile memory(data, size);
  const auto file = zpp::cli::DataFile::Open(memory.path(), zpp::DType::kF32);
  if (file.ok()) {
    zpp::cli::CheckValues(*file, static_cast<int64_t>(size));
  } else {
    zpp::CheckSentence(file.status());
  }
  return 0;
}
