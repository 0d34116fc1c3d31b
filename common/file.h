// Files as values: one to read at any place, one that appears whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/status.h"

namespace zpp {

// A regular file, open for reading. Move only. Thread-safe once open. Each message names the file.
class InputFile {
 public:
  // kNotFound: cannot be opened. kInvalidArgument: not a regular file.
  static Result<InputFile> Open(const std::string& path);

  InputFile() = default;  // none
  InputFile(InputFile&& other) noexcept { *this = std::move(other); }
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }  // when it was opened
  // All of `out`, from `offset_bytes` on. kDataLoss when the file ends before or cannot be read.
  Status ReadAt(int64_t offset_bytes, std::span<std::byte> out) const;

 private:
  std::string path_;
  int fd_ = -1;
  int64_t size_bytes_ = 0;
};

// A file that is written beside its place and takes it in Commit(): whatever happens before, a file
// that was there stays as it is. Move only. Thread-safe for writes that do not overlap. Each
// message names the file.
class AsideFile {
 public:
  // kNotFound: the folder is missing or not writable. kInvalidArgument: something other than a
  // regular file has the place. kResourceExhausted: no descriptors, no space.
  static Result<AsideFile> Create(const std::string& path);

  AsideFile() = default;  // none
  AsideFile(AsideFile&& other) noexcept { *this = std::move(other); }
  AsideFile& operator=(AsideFile&& other) noexcept;
  ~AsideFile();  // what has not been committed is removed

  const std::string& path() const { return path_; }
  // From `offset_bytes` on; places never written read as zeros. kResourceExhausted when the disk is
  // full or fails.
  Status WriteAt(int64_t offset_bytes, std::span<const std::byte> bytes);
  // The bytes and then the name are on the disk when this returns ok. Only once.
  Status Commit();

 private:
  void Discard();

  std::string path_, aside_;
  int fd_ = -1;
};

// Whether AsideFile::Create could work there, before an hour of work.
Status CheckWritable(const std::string& path);

}  // namespace zpp
