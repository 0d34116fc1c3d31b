#include "cli/data_file.h"

#include <algorithm>
#include <array>
#include <bit>
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

}  // namespace

Result<DataFile> DataFile::Open(const std::string& path, DType raw_dtype) {
  DataFile file;
  ZPP_RETURN_IF_ERROR(EndsWith(path, ".safetensors") ? file.OpenSafetensors(path)
                                                     : file.OpenRaw(path, raw_dtype));
  if (file.elems_ == 0) {
    return InvalidArgument("'" + path + "' holds no fp32, fp16 or bf16 values");
  }
  return file;
}

Status DataFile::OpenRaw(const std::string& path, DType dtype) {
  ZPP_ASSIGN_OR_RETURN(file_, InputFile::Open(path));
  if (!IsFloat(dtype)) return InvalidArgument("raw values are fp32, fp16 or bf16");
  if (file_.size_bytes() % SizeOf(dtype) != 0) {
    return DataLoss("'" + path + "': " + std::to_string(file_.size_bytes()) +
                    " bytes are not a whole number of " + std::string(DTypeName(dtype)) +
                    " values");
  }
  Append(file_.size_bytes() / SizeOf(dtype), 0, dtype);
  return {};
}

Status DataFile::OpenSafetensors(const std::string& path) {
  ZPP_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(path));
  for (const StoredTensor& tensor : opened.tensors()) {
    if (tensor.dtype) Append(tensor.elems, tensor.offset_bytes, *tensor.dtype);
    (tensor.dtype ? taken_ : left_out_).push_back(tensor);
  }
  file_ = std::move(opened).TakeFile();
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
    return {file_.path() + ": " + std::to_string(elems_) + " raw " +
            std::string(DTypeName(runs_[0].dtype)) + " values"};
  }
  std::vector<std::string> notes = {file_.path() + ": " + Counted(taken_.size(), "tensor") + ", " +
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

Status DataFile::FillFromRun(const Run& run, int64_t skip_elems, DType dtype,
                             std::span<std::byte> out) const {
  const int64_t from_bytes = SizeOf(run.dtype), to_bytes = SizeOf(dtype);
  int64_t offset_bytes = run.offset_bytes + skip_elems * from_bytes;
  if (run.dtype == dtype) return file_.ReadAt(offset_bytes, out);
  std::array<std::byte, kPieceElems * 4> piece;
  std::byte* to = out.data();
  for (int64_t left = static_cast<int64_t>(out.size()) / to_bytes; left > 0;) {
    const int64_t elems = std::min(left, kPieceElems);
    const auto piece_bytes = static_cast<size_t>(elems * from_bytes);
    ZPP_RETURN_IF_ERROR(file_.ReadAt(offset_bytes, {piece.data(), piece_bytes}));
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
    ZPP_RETURN_IF_ERROR(FillFromRun(*run, skip, dtype, out.first(elems * elem_bytes)));
    out = out.subspan(elems * elem_bytes);
    at = (at + static_cast<int64_t>(elems)) % elems_;
  }
  return {};
}

}  // namespace zpp::cli
