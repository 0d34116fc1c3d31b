#include "common/safetensors_writer.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/strict_json.h"

namespace zpp {
namespace {

using Json = nlohmann::ordered_json;  // members stay as they are added

constexpr std::string_view kMetadataKey = "__metadata__";
// The data begins at a multiple of this.
constexpr size_t kAlignment_bytes = 8;

struct Layout {
  // Bytes, from the end of the header; as the tensors are given.
  std::vector<int64_t> begins, sizes;
  std::vector<size_t> order;  // tensors by their place in the file
};

Status Bad(const TensorToStore& tensor, const std::string& text) {
  return InvalidArgument("tensor '" + Printable(tensor.name) + "' " + text);
}

Result<int64_t> SizeBytes(const TensorToStore& tensor) {
  const int64_t bits = SafetensorsTypeBits(tensor.type);
  if (bits == 0 || bits % 8 != 0) {
    return Bad(tensor, "cannot be stored as '" + Printable(tensor.type) + "'");
  }
  int64_t bytes = bits / 8;
  for (const int64_t size : tensor.shape) {
    if (size < 0) return Bad(tensor, "has a negative size in its shape");
  }
  for (const int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return Bad(tensor, "has a shape whose number of bytes overflows");
    }
  }
  return bytes;
}

Status CheckNames(std::span<const TensorToStore> tensors) {
  std::set<std::string_view> names = {kMetadataKey};
  for (const TensorToStore& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return Bad(tensor,
                 tensor.name == kMetadataKey ? "has the name of the metadata" : "is there twice");
    }
  }
  return {};
}

Result<Layout> LayOut(std::span<const TensorToStore> tensors) {
  Layout layout;
  layout.begins.resize(tensors.size());
  for (const TensorToStore& tensor : tensors) {
    ZPP_ASSIGN_OR_RETURN(const int64_t bytes, SizeBytes(tensor));
    layout.sizes.push_back(bytes);
  }
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), size_t{0});
  std::ranges::stable_sort(layout.order, std::ranges::greater(),
                           [&](size_t index) { return SafetensorsTypeBits(tensors[index].type); });
  int64_t end = 0;
  for (const size_t index : layout.order) {
    layout.begins[index] = end;
    if (__builtin_add_overflow(end, layout.sizes[index], &end)) {
      return Bad(tensors[index], "and those before it have more bytes than a file can hold");
    }
  }
  return layout;
}

// Length, JSON and padding.
Result<std::string> MakeHeader(std::span<const TensorToStore> tensors, const Layout& layout,
                               const SafetensorsMetadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[std::string(kMetadataKey)] = metadata;
  for (const size_t index : layout.order) {
    const TensorToStore& tensor = tensors[index];
    const int64_t begin = layout.begins[index];
    header.push_back({tensor.name,
                      {{"dtype", tensor.type},
                       {"shape", tensor.shape},
                       {"data_offsets", {begin, begin + layout.sizes[index]}}}});
  }
  std::string json;
  try {
    json = header.dump();
  } catch (const Json::type_error&) {
    return InvalidArgument("a tensor's name or the metadata is not UTF-8");
  }
  json.append((kAlignment_bytes - json.size() % kAlignment_bytes) % kAlignment_bytes, ' ');
  if (json.size() > kMaxSafetensorsHeaderBytes) {
    return InvalidArgument("names and metadata take " + std::to_string(json.size()) +
                           " bytes, more than the " + std::to_string(kMaxSafetensorsHeaderBytes) +
                           " that are read");
  }
  std::string start;
  for (int i = 0; i < kSafetensorsLengthBytes; ++i) {
    start += static_cast<char>((json.size() >> (8 * i)) & 0xff);
  }
  return start + json;
}

Status Named(const std::string& path, const Status& status) {
  return {status.code(), "cannot write '" + path + "': " + status.message()};
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                    std::span<const TensorToStore> tensors,
                                                    const SafetensorsMetadata& metadata) {
  if (const Status names = CheckNames(tensors); !names.ok()) return Named(path, names);
  const Result<Layout> layout = LayOut(tensors);
  if (!layout.ok()) return Named(path, layout.status());
  const Result<std::string> header = MakeHeader(tensors, *layout, metadata);
  if (!header.ok()) return Named(path, header.status());
  SafetensorsWriter writer;
  ZPP_ASSIGN_OR_RETURN(writer.file_, AsideFile::Create(path));
  ZPP_RETURN_IF_ERROR(writer.file_.WriteAt(0, std::as_bytes(std::span<const char>(*header))));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t begin = static_cast<int64_t>(header->size()) + layout->begins[i];
    writer.cursors_.push_back({tensors[i].name, begin, begin + layout->sizes[i]});
  }
  return writer;
}

Status SafetensorsWriter::Append(size_t index, std::span<const std::byte> bytes) {
  if (index >= cursors_.size()) return InvalidArgument("no tensor " + std::to_string(index));
  Cursor& cursor = cursors_[index];
  const int64_t left = cursor.end_byte - cursor.next_byte;
  if (bytes.size() > static_cast<size_t>(left)) {
    return Named(file_.path(), InvalidArgument("tensor '" + Printable(cursor.name) + "' lacks " +
                                               std::to_string(left) + " bytes, not " +
                                               std::to_string(bytes.size())));
  }
  ZPP_RETURN_IF_ERROR(file_.WriteAt(cursor.next_byte, bytes));
  cursor.next_byte += static_cast<int64_t>(bytes.size());
  return {};
}

Status SafetensorsWriter::Commit() {
  for (const Cursor& cursor : cursors_) {
    if (cursor.next_byte == cursor.end_byte) continue;
    return Named(file_.path(),
                 InvalidArgument("tensor '" + Printable(cursor.name) + "' lacks " +
                                 std::to_string(cursor.end_byte - cursor.next_byte) + " bytes"));
  }
  return file_.Commit();
}

Status WriteSafetensors(const std::string& path, std::span<const TensorBytes> tensors,
                        const SafetensorsMetadata& metadata) {
  std::vector<TensorToStore> declared;
  for (const TensorBytes& tensor : tensors) declared.push_back(tensor.tensor);
  ZPP_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                       SafetensorsWriter::Create(path, declared, metadata));
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (const auto& piece : tensors[i].pieces) ZPP_RETURN_IF_ERROR(writer.Append(i, piece));
  }
  return writer.Commit();
}

}  // namespace zpp
