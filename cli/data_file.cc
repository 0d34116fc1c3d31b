#include "cli/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/float_bits.h"
#include "common/strict_json.h"

namespace zpp::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr int64_t kPieceElems = 1 << 14;
constexpr size_t kNamesInANote = 8;

float WidenAt(const std::byte* from, DType dtype) {
  uint32_t word = 0;
  std::memcpy(&word, from, static_cast<size_t>(SizeOf(dtype)));
  switch (dtype) {
    case DType::kF32:
      return FloatOf(word);
    case DType::kF16:
      return F32FromF16(static_cast<uint16_t>(word));
    case DType::kBF16:
      return F32FromBF16(static_cast<uint16_t>(word));
    case DType::kByte:
      break;
  }
  return 0;
}

void NarrowAt(float value, DType dtype, std::byte* to) {
  uint32_t word = 0;
  switch (dtype) {
    case DType::kF32:
      word = BitsOf(value);
      break;
    case DType::kF16:
      word = F16FromF32(value);
      break;
    case DType::kBF16:
      word = BF16FromF32(value);
      break;
    case DType::kByte:
      break;
  }
  std::memcpy(to, &word, static_cast<size_t>(SizeOf(dtype)));
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::string Counted(size_t n, const std::string& what) {
  return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s");
}

Status Named(const std::string& path, const Status& status) {
  return status.ok() ? status : Status(status.code(), "'" + path + "': " + status.message());
}

}  // namespace

DataFile::DataFile(DataFile&& other) noexcept { *this = std::move(other); }

DataFile& DataFile::operator=(DataFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(elems_, other.elems_);
  std::swap(runs_, other.runs_);
  std::swap(taken_, other.taken_);
  std::swap(left_out_, other.left_out_);
  return *this;
}

DataFile::~DataFile() {
  if (fd_ >= 0) close(fd_);
}

Result<DataFile> DataFile::Open(const std::string& path, DType raw_dtype) {
  DataFile file;
  file.path_ = path;
  // Not blocking: a pipe that nobody writes to must be refused, not waited for.
  file.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info = {};
  if (file.fd_ < 0 || fstat(file.fd_, &info) != 0) {
    return Status(StatusCode::kNotFound,
                  "cannot open the data file '" + path + "': " + std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return InvalidArgument("'" + path + "' is not a regular file");
  const Status opened = EndsWith(path, ".safetensors") ? file.OpenSafetensors(info.st_size)
                                                       : file.OpenRaw(info.st_size, raw_dtype);
  ZPP_RETURN_IF_ERROR(Named(path, opened));
  if (file.elems_ == 0) {
    return InvalidArgument("'" + path + "' holds no fp32, fp16 or bf16 values");
  }
  return file;
}

Status DataFile::OpenRaw(int64_t file_bytes, DType dtype) {
  if (!IsFloat(dtype)) return InvalidArgument("raw values are fp32, fp16 or bf16");
  if (file_bytes % SizeOf(dtype) != 0) {
    return DataLoss(std::to_string(file_bytes) + " bytes are not a whole number of " +
                    std::string(DTypeName(dtype)) + " values");
  }
  Append(file_bytes / SizeOf(dtype), 0, dtype);
  return {};
}

Status DataFile::OpenSafetensors(int64_t file_bytes) {
  std::array<std::byte, kSafetensorsLengthBytes> start = {};
  const int64_t start_bytes = std::min(file_bytes, kSafetensorsLengthBytes);
  const std::span<std::byte> present(start.data(), static_cast<size_t>(start_bytes));
  ZPP_RETURN_IF_ERROR(ReadBytes(0, present));
  ZPP_ASSIGN_OR_RETURN(const int64_t header_bytes, SafetensorsHeaderBytes(present, file_bytes));
  std::string header(static_cast<size_t>(header_bytes), '\0');
  ZPP_RETURN_IF_ERROR(
      ReadBytes(kSafetensorsLengthBytes, std::as_writable_bytes(std::span<char>(header))));
  ZPP_ASSIGN_OR_RETURN(std::vector<TensorInfo> tensors, ParseSafetensorsHeader(header, file_bytes));
  for (TensorInfo& tensor : tensors) {
    if (tensor.dtype) Append(tensor.elems, tensor.offset_bytes, *tensor.dtype);
    (tensor.dtype ? taken_ : left_out_).push_back(std::move(tensor));
  }
  return {};
}

void DataFile::Append(int64_t elems, int64_t offset_bytes, DType dtype) {
  if (elems == 0) return;
  const bool follows =
      !runs_.empty() && runs_.back().dtype == dtype &&
      runs_.back().offset_bytes + runs_.back().elems * SizeOf(dtype) == offset_bytes;
  if (follows) {
    runs_.back().elems += elems;
  } else {
    runs_.push_back({elems_, elems, offset_bytes, dtype});
  }
  elems_ += elems;
}

std::vector<std::string> DataFile::Notes() const {
  if (taken_.empty() && left_out_.empty()) {
    return {path_ + ": " + std::to_string(elems_) + " raw " +
            std::string(DTypeName(runs_[0].dtype)) + " values"};
  }
  std::vector<std::string> notes = {path_ + ": " + Counted(taken_.size(), "tensor") + ", " +
                                    std::to_string(elems_) + " values"};
  if (left_out_.empty()) return notes;
  std::string line =
      "left out " + Counted(left_out_.size(), "tensor") + " not of fp32, fp16 or bf16:";
  for (size_t i = 0; i < std::min(left_out_.size(), kNamesInANote); ++i) {
    line += (i == 0 ? " " : ", ") + Printable(left_out_[i].name) + " (" + left_out_[i].type + ")";
  }
  if (left_out_.size() > kNamesInANote) line += ", ...";
  notes.push_back(std::move(line));
  return notes;
}

Status DataFile::ReadBytes(int64_t offset_bytes, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = pread(fd_, out.data(), out.size(), offset_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DataLoss(std::string("cannot read: ") + std::strerror(errno));
    if (got == 0) return DataLoss("the file ends at byte " + std::to_string(offset_bytes));
    offset_bytes += got;
    out = out.subspan(static_cast<size_t>(got));
  }
  return {};
}

Status DataFile::FillFromRun(const Run& run, int64_t skip_elems, DType dtype,
                             std::span<std::byte> out) const {
  const int64_t from_bytes = SizeOf(run.dtype), to_bytes = SizeOf(dtype);
  int64_t offset_bytes = run.offset_bytes + skip_elems * from_bytes;
  if (run.dtype == dtype) return ReadBytes(offset_bytes, out);
  std::array<std::byte, kPieceElems * 4> piece;
  std::byte* to = out.data();
  for (int64_t left = static_cast<int64_t>(out.size()) / to_bytes; left > 0;) {
    const int64_t elems = std::min(left, kPieceElems);
    const auto piece_bytes = static_cast<size_t>(elems * from_bytes);
    ZPP_RETURN_IF_ERROR(ReadBytes(offset_bytes, {piece.data(), piece_bytes}));
    for (int64_t i = 0; i < elems; ++i) {
      NarrowAt(WidenAt(piece.data() + i * from_bytes, run.dtype), dtype, to + i * to_bytes);
    }
    to += elems * to_bytes;
    offset_bytes += elems * from_bytes;
    left -= elems;
  }
  return {};
}

Status DataFile::Fill(int64_t first_elem, DType dtype, std::span<std::byte> out) const {
  const auto elem_bytes = static_cast<size_t>(SizeOf(dtype));
  if (!IsFloat(dtype) || first_elem < 0 || out.size() % elem_bytes != 0) {
    return InvalidArgument("values are read as whole fp32, fp16 or bf16 elements from 0 on");
  }
  int64_t at = first_elem % elems_;
  while (!out.empty()) {
    const auto run = std::prev(std::upper_bound(
        runs_.begin(), runs_.end(), at,
        [](int64_t elem, const Run& candidate) { return elem < candidate.first_elem; }));
    const int64_t skip = at - run->first_elem;
    const size_t wanted = out.size() / elem_bytes;
    const size_t elems = std::min(wanted, static_cast<size_t>(run->elems - skip));
    ZPP_RETURN_IF_ERROR(
        Named(path_, FillFromRun(*run, skip, dtype, out.first(elems * elem_bytes))));
    out = out.subspan(elems * elem_bytes);
    at = (at + static_cast<int64_t>(elems)) % elems_;
  }
  return {};
}

}  // namespace zpp::cli
