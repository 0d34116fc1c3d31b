#include <algorithm>

#include "common/buffer.h"
#include "common/file.h"
#include "common/strict_json.h"
#include "zero/checkpoint.h"
#include "zero/internal/checkpoint_folder.h"
#include "zero/internal/checkpoint_manifest.h"
#include "zero/internal/checkpoint_shard.h"
#include "zero/internal/checkpoint_shard_reader.h"

namespace zpp {

using internal::Manifest;
using internal::SavedPiece;
using internal::SavedTensor;

class CheckpointReader::Impl {
 public:
  Impl(std::string folder, Manifest manifest)
      : folder_(std::move(folder)), manifest_(std::move(manifest)), shards_(folder_, manifest_) {
    for (const auto& [name, tensor] : manifest_.tensors) names_.push_back(name);
  }

  Status CheckShards() const;
  Status Read(const std::string& name, int64_t first_elem, const Vec& out);
  Status Verify();

  const SavedTensor* Find(const std::string& name) const {
    const auto it = manifest_.tensors.find(name);
    return it == manifest_.tensors.end() ? nullptr : &it->second;
  }
  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::string Called(const std::string& name) const {
    return "'" + Printable(name) + "' in '" + folder_ + "'";
  }
  Status CheckRequest(const std::string& name, const SavedTensor& tensor, int64_t first_elem,
                      const Vec& out) const;
  Status VerifyPiece(const SavedPiece& piece, int64_t piece_bytes, std::span<std::byte> scratch);

  std::string folder_;
  Manifest manifest_;
  std::vector<std::string> names_;
  internal::ShardReader shards_;
};

// A file that is missing is kNotFound to who opens it, but here it is a part of something lost.
Status CheckpointReader::Impl::CheckShards() const {
  for (size_t rank = 0; rank < manifest_.shards.size(); ++rank) {
    const internal::ShardIdentity identity = {.id = manifest_.id,
                                              .step = manifest_.meta.step,
                                              .rank = static_cast<int>(rank),
                                              .world = static_cast<int>(manifest_.shards.size())};
    const auto file = InputFile::Open(folder_ + "/" + manifest_.shards[rank].file);
    if (!file.ok()) {
      return DataLoss("a shard of the checkpoint is missing: " + file.status().message());
    }
    ZPP_RETURN_IF_ERROR(internal::CheckShard(*file, manifest_.shards[rank], identity));
  }
  return {};
}

Status CheckpointReader::Impl::CheckRequest(const std::string& name, const SavedTensor& tensor,
                                            int64_t first_elem, const Vec& out) const {
  if (out.dtype != tensor.dtype) {
    return InvalidArgument(Called(name) + " is " + std::string(DTypeName(tensor.dtype)) +
                           ", but is read as " +
                           (out.dtype > DType::kByte ? "?" : std::string(DTypeName(out.dtype))));
  }
  if (first_elem < 0 || out.elems < 0 || first_elem > tensor.elems ||
      out.elems > tensor.elems - first_elem) {
    return InvalidArgument(Called(name) + " has " + std::to_string(tensor.elems) +
                           " elements, not " + std::to_string(out.elems) + " from " +
                           std::to_string(first_elem) + " on");
  }
  if (out.elems == 0 || out.data != nullptr) return {};
  return InvalidArgument("the output for " + Called(name) + " is null");
}

Status CheckpointReader::Impl::Read(const std::string& name, int64_t first_elem, const Vec& out) {
  const SavedTensor* tensor = Find(name);
  if (tensor == nullptr) return InvalidArgument("there is no " + Called(name));
  ZPP_RETURN_IF_ERROR(CheckRequest(name, *tensor, first_elem, out));
  const int64_t size = SizeOf(tensor->dtype), end = first_elem + out.elems;
  const std::span<std::byte> bytes(static_cast<std::byte*>(out.data),
                                   static_cast<size_t>(out.elems * size));
  // The last piece that begins at first_elem or before it.
  auto piece = std::partition_point(
      tensor->pieces.begin(), tensor->pieces.end(),
      [first_elem](const SavedPiece& p) { return p.first_elem + p.elems <= first_elem; });
  for (int64_t at = first_elem; at < end; ++piece) {
    if (piece == tensor->pieces.end() || piece->first_elem > at) {
      return InvalidArgument(Called(name) + " was saved in part, without element " +
                             std::to_string(at));
    }
    const int64_t to = std::min(piece->first_elem + piece->elems, end);
    ZPP_RETURN_IF_ERROR(shards_.Read(*piece, piece->elems * size, (at - piece->first_elem) * size,
                                     bytes.subspan(static_cast<size_t>((at - first_elem) * size),
                                                   static_cast<size_t>((to - at) * size))));
    at = to;
  }
  return {};
}

Status CheckpointReader::Impl::VerifyPiece(const SavedPiece& piece, int64_t piece_bytes,
                                           std::span<std::byte> scratch) {
  const auto step = static_cast<int64_t>(scratch.size());
  for (int64_t at = 0; at < piece_bytes; at += step) {
    const auto n = static_cast<size_t>(std::min(step, piece_bytes - at));
    ZPP_RETURN_IF_ERROR(shards_.Read(piece, piece_bytes, at, scratch.first(n)));
  }
  return {};
}

Status CheckpointReader::Impl::Verify() {
  ZPP_RETURN_IF_ERROR(CheckShards());
  ZPP_ASSIGN_OR_RETURN(const Buffer scratch,
                       Buffer::Allocate(static_cast<size_t>(manifest_.chunk_bytes)));
  for (const auto& [name, tensor] : manifest_.tensors) {
    for (const SavedPiece& piece : tensor.pieces) {
      ZPP_RETURN_IF_ERROR(VerifyPiece(piece, piece.elems * SizeOf(tensor.dtype), scratch.span()));
    }
  }
  return {};
}

CheckpointReader::CheckpointReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

Result<CheckpointReader> CheckpointReader::Open(const std::string& path) {
  ZPP_ASSIGN_OR_RETURN(const std::string folder, internal::FindCheckpoint(path));
  ZPP_ASSIGN_OR_RETURN(Manifest manifest, internal::ReadManifest(folder));
  auto impl = std::make_unique<Impl>(folder, std::move(manifest));
  ZPP_RETURN_IF_ERROR(impl->CheckShards());
  return CheckpointReader(std::move(impl));
}

const CheckpointMeta& CheckpointReader::meta() const { return impl_->manifest().meta; }
const std::string& CheckpointReader::folder() const { return impl_->folder(); }
int CheckpointReader::writers() const { return static_cast<int>(impl_->manifest().shards.size()); }
const std::vector<std::string>& CheckpointReader::names() const { return impl_->names(); }
bool CheckpointReader::Has(const std::string& name) const { return impl_->Find(name) != nullptr; }

std::vector<int64_t> CheckpointReader::shape(const std::string& name) const {
  const SavedTensor* tensor = impl_->Find(name);
  return tensor == nullptr ? std::vector<int64_t>{} : tensor->shape;
}

DType CheckpointReader::dtype(const std::string& name) const {
  const SavedTensor* tensor = impl_->Find(name);
  return tensor == nullptr ? DType::kByte : tensor->dtype;
}

Status CheckpointReader::Read(const std::string& name, int64_t first_elem, Vec out) const {
  return impl_->Read(name, first_elem, out);
}

Status CheckpointReader::Verify() const { return impl_->Verify(); }

}  // namespace zpp
