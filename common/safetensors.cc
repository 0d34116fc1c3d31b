#include "common/safetensors.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <tuple>

#include <nlohmann/json.hpp>

#include "common/strict_json.h"

namespace zpp {
namespace {

using Json = nlohmann::json;

struct TypeRow {
  std::string_view name;
  int64_t bits;
  std::optional<DType> dtype;
};

constexpr std::array kTypes = {
    TypeRow{"F32", 32, DType::kF32},
    TypeRow{"F16", 16, DType::kF16},
    TypeRow{"BF16", 16, DType::kBF16},
    TypeRow{"F64", 64, {}},
    TypeRow{"C64", 64, {}},
    TypeRow{"F8_E4M3", 8, {}},
    TypeRow{"F8_E5M2", 8, {}},
    TypeRow{"F8_E8M0", 8, {}},
    TypeRow{"F6_E2M3", 6, {}},
    TypeRow{"F6_E3M2", 6, {}},
    TypeRow{"F4", 4, {}},
    TypeRow{"I64", 64, {}},
    TypeRow{"U64", 64, {}},
    TypeRow{"I32", 32, {}},
    TypeRow{"U32", 32, {}},
    TypeRow{"I16", 16, {}},
    TypeRow{"U16", 16, {}},
    TypeRow{"I8", 8, {}},
    TypeRow{"U8", 8, {}},
    TypeRow{"BOOL", 8, {}},
};

struct Extent {
  int64_t begin = 0, end = 0;  // bytes after the header
};

Status Bad(const std::string& name, const std::string& text) {
  return DataLoss("tensor '" + Printable(name) + "' " + text);
}

Result<const TypeRow*> ReadType(const std::string& name, const Json& entry) {
  const auto it = entry.find("dtype");
  if (it == entry.end() || !it->is_string()) return Bad(name, "has no dtype");
  const std::string& text = it->get_ref<const std::string&>();
  for (const TypeRow& row : kTypes) {
    if (row.name == text) return &row;
  }
  return Bad(name, "has the unknown dtype '" + Printable(text) + "'");
}

// A size or an offset: an integer in 0..2^63-1.
bool IsCount(const Json& value) {
  return value.is_number_unsigned() &&
         value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

Status ReadShape(const std::string& name, const Json& entry, StoredTensor* tensor) {
  const auto it = entry.find("shape");
  if (it == entry.end() || !it->is_array()) return Bad(name, "has no shape");
  tensor->elems = 1;
  for (const Json& size : *it) {
    if (!IsCount(size)) return Bad(name, "has a shape that is not a list of sizes");
    const auto n = size.get<int64_t>();
    if (__builtin_mul_overflow(tensor->elems, n, &tensor->elems)) {
      return Bad(name, "has a shape whose number of elements overflows");
    }
    tensor->shape.push_back(n);
  }
  return {};
}

Result<Extent> ReadExtent(const std::string& name, const Json& entry, int64_t data_bytes) {
  const auto it = entry.find("data_offsets");
  if (it == entry.end() || !it->is_array() || it->size() != 2 || !IsCount((*it)[0]) ||
      !IsCount((*it)[1])) {
    return Bad(name, "has no data_offsets [begin, end]");
  }
  const Extent extent = {(*it)[0].get<int64_t>(), (*it)[1].get<int64_t>()};
  if (extent.end < extent.begin) return Bad(name, "has data_offsets that decrease");
  if (extent.end > data_bytes) {
    return Bad(name, "ends at byte " + std::to_string(extent.end) + " of " +
                         std::to_string(data_bytes) + " bytes of data");
  }
  return extent;
}

Status CheckSize(const StoredTensor& tensor, const TypeRow& type, const Extent& extent) {
  int64_t bits = 0;
  if (__builtin_mul_overflow(tensor.elems, type.bits, &bits)) {
    return Bad(tensor.name, "has a shape whose number of bytes overflows");
  }
  const int64_t bytes = extent.end - extent.begin;
  if (bits % 8 == 0 && bits / 8 == bytes) return {};
  return Bad(tensor.name, "has " + std::to_string(bytes) + " bytes, but " +
                              std::to_string(tensor.elems) + " elements of " + tensor.type);
}

Result<StoredTensor> ReadTensor(const std::string& name, const Json& entry, int64_t data_bytes) {
  if (!entry.is_object()) return Bad(name, "is not described by an object");
  StoredTensor tensor;
  tensor.name = name;
  ZPP_ASSIGN_OR_RETURN(const TypeRow* type, ReadType(name, entry));
  tensor.type = type->name;
  tensor.dtype = type->dtype;
  ZPP_RETURN_IF_ERROR(ReadShape(name, entry, &tensor));
  ZPP_ASSIGN_OR_RETURN(const Extent extent, ReadExtent(name, entry, data_bytes));
  ZPP_RETURN_IF_ERROR(CheckSize(tensor, *type, extent));
  for (const auto& item : entry.items()) {
    if (item.key() != "dtype" && item.key() != "shape" && item.key() != "data_offsets") {
      return Bad(name, "has the unknown key '" + Printable(item.key()) + "'");
    }
  }
  tensor.offset_bytes = extent.begin;
  tensor.size_bytes = extent.end - extent.begin;
  return tensor;
}

Result<SafetensorsMetadata> ReadMetadata(const Json& entry) {
  const Status bad = DataLoss("__metadata__ is not an object of strings");
  if (!entry.is_object()) return bad;
  SafetensorsMetadata metadata;
  for (const auto& item : entry.items()) {
    if (!item.value().is_string()) return bad;
    metadata[item.key()] = item.value().get<std::string>();
  }
  return metadata;
}

// Tensors sorted by their bytes follow each other without a gap, from 0 to data_bytes.
Status CheckCover(const std::vector<StoredTensor>& tensors, int64_t data_bytes) {
  int64_t end = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.offset_bytes < end) return Bad(tensor.name, "overlaps the one before it");
    if (tensor.offset_bytes > end) {
      return Bad(tensor.name, "begins at byte " + std::to_string(tensor.offset_bytes) +
                                  ", a hole after byte " + std::to_string(end));
    }
    end += tensor.size_bytes;
  }
  if (end == data_bytes) return {};
  return DataLoss("the tensors end at byte " + std::to_string(end) + " of " +
                  std::to_string(data_bytes) + " bytes of data");
}

Status Named(const std::string& path, const Status& status) {
  return {status.code(), "'" + path + "': " + status.message()};
}

Result<SafetensorsHeader> ReadHeader(const InputFile& file) {
  std::array<std::byte, kSafetensorsLengthBytes> start = {};
  const auto start_bytes = std::min(file.size_bytes(), kSafetensorsLengthBytes);
  const std::span<std::byte> present(start.data(), static_cast<size_t>(start_bytes));
  ZPP_RETURN_IF_ERROR(file.ReadAt(0, present));
  const Result<int64_t> json_bytes = SafetensorsHeaderBytes(present, file.size_bytes());
  if (!json_bytes.ok()) return Named(file.path(), json_bytes.status());
  std::string json(static_cast<size_t>(*json_bytes), '\0');
  ZPP_RETURN_IF_ERROR(
      file.ReadAt(kSafetensorsLengthBytes, std::as_writable_bytes(std::span<char>(json))));
  Result<SafetensorsHeader> header = ParseSafetensorsHeader(json, file.size_bytes());
  if (!header.ok()) return Named(file.path(), header.status());
  return header;
}

}  // namespace

Result<int64_t> SafetensorsHeaderBytes(std::span<const std::byte> start, int64_t file_bytes) {
  if (start.size() < kSafetensorsLengthBytes || file_bytes < kSafetensorsLengthBytes) {
    return DataLoss("a .safetensors file has at least 8 bytes, this one has " +
                    std::to_string(file_bytes));
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    length |= static_cast<uint64_t>(start[i]) << (8 * i);
  }
  if (length > static_cast<uint64_t>(file_bytes - kSafetensorsLengthBytes)) {
    return DataLoss("the header claims " + std::to_string(length) + " bytes, the file has " +
                    std::to_string(file_bytes));
  }
  if (length > kMaxSafetensorsHeaderBytes) {
    return DataLoss("the header claims " + std::to_string(length) + " bytes, more than the " +
                    std::to_string(kMaxSafetensorsHeaderBytes) + " that are read");
  }
  return static_cast<int64_t>(length);
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t file_bytes) {
  const int64_t data_start = kSafetensorsLengthBytes + static_cast<int64_t>(json.size());
  const int64_t data_bytes = file_bytes - data_start;
  if (data_bytes < 0) return DataLoss("the header is longer than the file");
  const JsonLimits limits = {.max_bytes = size_t{kMaxSafetensorsHeaderBytes}, .max_depth = 4};
  ZPP_ASSIGN_OR_RETURN(const Json json_header, ParseStrictJson(json, limits));
  if (!json_header.is_object()) return DataLoss("the header is not a JSON object");
  SafetensorsHeader header;
  for (const auto& item : json_header.items()) {
    if (item.key() == "__metadata__") {
      ZPP_ASSIGN_OR_RETURN(header.metadata, ReadMetadata(item.value()));
      continue;
    }
    ZPP_ASSIGN_OR_RETURN(StoredTensor tensor, ReadTensor(item.key(), item.value(), data_bytes));
    header.tensors.push_back(std::move(tensor));
  }
  // Tensors of no bytes come before the one that begins where they lie.
  std::ranges::sort(header.tensors, {}, [](const StoredTensor& tensor) {
    return std::make_tuple(tensor.offset_bytes, tensor.elems > 0, std::cref(tensor.name));
  });
  ZPP_RETURN_IF_ERROR(CheckCover(header.tensors, data_bytes));
  for (StoredTensor& tensor : header.tensors) tensor.offset_bytes += data_start;
  return header;
}

int64_t SafetensorsTypeBits(std::string_view type) {
  const auto* row = std::ranges::find(kTypes, type, &TypeRow::name);
  return row == kTypes.end() ? 0 : row->bits;
}

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile file;
  ZPP_ASSIGN_OR_RETURN(file.file_, InputFile::Open(path));
  ZPP_ASSIGN_OR_RETURN(file.header_, ReadHeader(file.file_));
  return file;
}

const StoredTensor* SafetensorsFile::Find(std::string_view name) const {
  const auto it = std::ranges::find(header_.tensors, name, &StoredTensor::name);
  return it == header_.tensors.end() ? nullptr : &*it;
}

Status SafetensorsFile::Read(const StoredTensor& tensor, int64_t first_byte,
                             std::span<std::byte> out) const {
  const int64_t left = tensor.size_bytes - first_byte;
  if (first_byte < 0 || left < 0 || out.size() > static_cast<size_t>(left)) {
    return InvalidArgument("'" + file_.path() + "': tensor '" + Printable(tensor.name) + "' has " +
                           std::to_string(tensor.size_bytes) + " bytes, " +
                           std::to_string(out.size()) + " from byte " + std::to_string(first_byte) +
                           " on are asked for");
  }
  return file_.ReadAt(tensor.offset_bytes + first_byte, out);
}

}  // namespace zpp
