// Any text either is refused with one sentence or is a manifest all of whose numbers can be used.
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "zero/checkpoint.h"
#include "zero/internal/checkpoint_manifest.h"

namespace zpp::internal {
namespace {

// What a reader relies on, without a check of its own.
void CheckPiece(const Manifest& manifest, const SavedTensor& tensor, const SavedPiece& piece) {
  ZPP_FUZZ_CHECK(piece.elems > 0 && piece.first_elem >= 0);
  ZPP_FUZZ_CHECK(piece.elems <= tensor.elems - piece.first_elem);
  ZPP_FUZZ_CHECK(piece.shard >= 0 && piece.shard < static_cast<int>(manifest.shards.size()));
  const ShardFile& shard = manifest.shards[static_cast<size_t>(piece.shard)];
  const int64_t bytes = piece.elems * SizeOf(tensor.dtype);
  ZPP_FUZZ_CHECK(piece.offset_bytes >= shard.header_bytes);
  ZPP_FUZZ_CHECK(bytes <= shard.file_bytes - piece.offset_bytes);
  const auto chunks = static_cast<int64_t>(piece.checksums.size());
  ZPP_FUZZ_CHECK((chunks - 1) * manifest.chunk_bytes < bytes);
  ZPP_FUZZ_CHECK(bytes <= chunks * manifest.chunk_bytes);
}

void CheckTensor(const Manifest& manifest, const SavedTensor& tensor) {
  int64_t end = 0;
  for (const SavedPiece& piece : tensor.pieces) {
    CheckPiece(manifest, tensor, piece);
    ZPP_FUZZ_CHECK(tensor.partial ? piece.first_elem >= end : piece.first_elem == end);
    end = piece.first_elem + piece.elems;
  }
  ZPP_FUZZ_CHECK(tensor.partial ? end <= tensor.elems : end == tensor.elems);
}

// Written again it reads as the same.
void CheckRoundTrip(const Manifest& manifest) {
  const auto text = ManifestText(manifest);
  ZPP_FUZZ_CHECK(text.ok());
  const auto again = ParseManifest(*text);
  ZPP_FUZZ_CHECK(again.ok());
  ZPP_FUZZ_CHECK(*ManifestText(*again) == *text);
}

void CheckText(const std::string& text) {
  const auto manifest = ParseManifest(text);
  if (!manifest.ok()) return CheckSentence(manifest.status());
  for (const auto& [name, tensor] : manifest->tensors) CheckTensor(*manifest, tensor);
  CheckRoundTrip(*manifest);
  const Status other = CheckSameModel(manifest->meta.model_fingerprint, "{\"w\":[3,4]}");
  if (!other.ok()) CheckSentence(other);
}

}  // namespace
}  // namespace zpp::internal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  zpp::internal::CheckText(text);
  // With a right checksum, so that what stands behind it is reached.
  zpp::internal::CheckText(zpp::internal::Seal(text));
  (void)zpp::CheckSameModel(text, "{\"w\":[3,4]}");
  return 0;
}
