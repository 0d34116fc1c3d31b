#include "common/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace zpp {
namespace {

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

bool IsOutOfSomething(int error) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG || error == EMFILE ||
         error == ENFILE || error == ENOMEM;
}

Status CannotCreate(const std::string& path, int error) {
  const StatusCode code =
      IsOutOfSomething(error) ? StatusCode::kResourceExhausted : StatusCode::kNotFound;
  return {code, "cannot write '" + path + "': " + std::strerror(error)};
}

Status CannotWrite(const std::string& path, int error) {
  return {StatusCode::kResourceExhausted,
          "cannot write '" + path + "': " + std::strerror(error) + "; what was there is unchanged"};
}

// Makes a rename in the folder last. File systems that cannot are left to their own promises.
void SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)fsync(fd);
  close(fd);
}

}  // namespace

Result<InputFile> InputFile::Open(const std::string& path) {
  InputFile file;
  file.path_ = path;
  // Not blocking: a pipe that nobody writes to must be refused, not waited for.
  file.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info = {};
  if (file.fd_ < 0 || fstat(file.fd_, &info) != 0) {
    return Status(StatusCode::kNotFound, "cannot open '" + path + "': " + std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return InvalidArgument("'" + path + "' is not a regular file");
  file.size_bytes_ = info.st_size;
  return file;
}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

Status InputFile::ReadAt(int64_t offset_bytes, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = pread(fd_, out.data(), out.size(), offset_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DataLoss("'" + path_ + "': cannot read: " + std::strerror(errno));
    if (got == 0) {
      return DataLoss("'" + path_ + "': the file ends at byte " + std::to_string(offset_bytes));
    }
    offset_bytes += got;
    out = out.subspan(static_cast<size_t>(got));
  }
  return {};
}

Status CheckWritable(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return InvalidArgument("cannot write '" + path + "': it is " +
                           (S_ISDIR(info.st_mode) ? "a folder" : "not a regular file"));
  }
  const std::string folder = FolderOf(path);
  if (access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return {StatusCode::kNotFound,
          "cannot write '" + path + "': folder '" + folder + "': " + std::strerror(errno)};
}

Result<AsideFile> AsideFile::Create(const std::string& path) {
  static std::atomic<int> count = 0;
  ZPP_RETURN_IF_ERROR(CheckWritable(path));
  AsideFile file;
  // What a link points to is replaced, not the link.
  std::error_code error;
  const auto target = std::filesystem::canonical(path, error);
  file.path_ = error ? path : target.string();
  file.aside_ = file.path_ + ".part" + std::to_string(getpid()) + "_" + std::to_string(count++);
  file.fd_ = open(file.aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file.fd_ < 0) return CannotCreate(path, errno);
  return file;
}

AsideFile& AsideFile::operator=(AsideFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(aside_, other.aside_);
  std::swap(fd_, other.fd_);
  return *this;
}

AsideFile::~AsideFile() { Discard(); }

void AsideFile::Discard() {
  if (fd_ < 0) return;
  close(std::exchange(fd_, -1));
  unlink(aside_.c_str());
}

Status AsideFile::WriteAt(int64_t offset_bytes, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = pwrite(fd_, bytes.data(), bytes.size(), offset_bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return CannotWrite(path_, put < 0 ? errno : ENOSPC);
    offset_bytes += put;
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return {};
}

Status AsideFile::Commit() {
  int error = fsync(fd_) == 0 ? 0 : errno;
  // Closing can be the moment at which a network file system finds its disk full.
  if (close(std::exchange(fd_, -1)) != 0 && error == 0) error = errno;
  if (error == 0 && rename(aside_.c_str(), path_.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(aside_.c_str());
    return CannotWrite(path_, error);
  }
  SyncFolder(FolderOf(path_));
  return {};
}

}  // namespace zpp
