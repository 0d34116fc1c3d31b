#include "zero/checkpoint_export.h"

#include <algorithm>
#include <optional>

#include "common/buffer.h"
#include "common/safetensors_writer.h"
#include "common/strict_json.h"
#include "zero/internal/checkpoint_manifest.h"
#include "zero/internal/checkpoint_shard.h"
#include "zero/internal/checkpoint_team.h"

namespace zpp {
namespace {

using internal::Team;

// The largest tensor's, checked.
Result<int64_t> ScratchBytes(std::span<const ExportTensor> tensors) {
  int64_t bytes = 0;
  for (const ExportTensor& tensor : tensors) {
    const auto elems = internal::ElemsOf(tensor.shape, tensor.dtype);
    if (!elems)
      return InvalidArgument("'" + Printable(tensor.name) + "' has the impossible shape " +
                             internal::ShapeText(tensor.shape));
    bytes = std::max(bytes, *elems * SizeOf(tensor.dtype));
  }
  return bytes;
}

Result<SafetensorsWriter> CreateFile(const std::string& path, std::span<const ExportTensor> tensors,
                                     const SafetensorsMetadata& metadata) {
  std::vector<TensorToStore> stored;
  for (const ExportTensor& tensor : tensors) {
    stored.push_back({tensor.name, internal::SafetensorsTypeOf(tensor.dtype), tensor.shape});
  }
  return SafetensorsWriter::Create(path, stored, metadata);
}

// One tensor after another: fetched by all, written by the rank that leads. All stop at the first
// failure of any.
Status Stream(Team& team, std::span<const ExportTensor> tensors, const ExportSource& source,
              const Buffer& scratch, std::optional<SafetensorsWriter>& file) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t elems = internal::ElemsOf(tensors[i].shape, tensors[i].dtype).value_or(0);
    const auto bytes = static_cast<size_t>(elems * SizeOf(tensors[i].dtype));
    Status own = source(i, {tensors[i].dtype, scratch.data(), elems});
    if (own.ok() && file) own = file->Append(i, scratch.span().first(bytes));
    ZPP_RETURN_IF_ERROR(team.Agree(own));
  }
  return team.Agree(file ? file->Commit() : Status());
}

}  // namespace

Status ExportSafetensors(Communicator& comm, const std::string& path,
                         std::span<const ExportTensor> tensors, const ExportSource& source,
                         const ExportOptions& options) {
  Team team(comm, options.patience_s);
  Status ready;
  Buffer scratch;
  std::optional<SafetensorsWriter> file;
  const auto bytes = ScratchBytes(tensors);
  ready = bytes.status();
  if (ready.ok()) {
    auto buffer = Buffer::Allocate(static_cast<size_t>(*bytes));
    ready = buffer.status();
    if (buffer.ok()) scratch = *std::move(buffer);
  }
  if (ready.ok() && team.leads()) {
    auto made = CreateFile(path, tensors, options.metadata);
    ready = made.status();
    if (made.ok()) file.emplace(*std::move(made));
  }
  ZPP_RETURN_IF_ERROR(team.Agree(ready));
  return Stream(team, tensors, source, scratch, file);
}

}  // namespace zpp
