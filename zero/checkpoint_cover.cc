// Who owns which elements of a tensor: all of them, each once.
#include <algorithm>
#include <limits>

#include "common/strict_json.h"
#include "zero/internal/checkpoint_manifest.h"

namespace zpp::internal {
namespace {

std::string Elements(int64_t first, int64_t end) {
  return "elements " + std::to_string(first) + " to " + std::to_string(end - 1);
}

std::string Called(const std::string& name, const SavedTensor& tensor) {
  return "'" + Printable(name) + "' " + ShapeText(tensor.shape);
}

Status CheckInside(const std::string& name, const SavedTensor& tensor, const SavedPiece& piece) {
  const bool inside = piece.first_elem >= 0 && piece.elems >= 0 &&
                      piece.first_elem <= tensor.elems &&
                      piece.elems <= tensor.elems - piece.first_elem;
  if (inside) return {};
  return InvalidArgument("rank " + std::to_string(piece.shard) + " owns " +
                         std::to_string(piece.elems) + " elements from " +
                         std::to_string(piece.first_elem) + " on of " + Called(name, tensor) +
                         ", which has " + std::to_string(tensor.elems));
}

Status Hole(const std::string& name, const SavedTensor& tensor, int64_t first, int64_t end) {
  return InvalidArgument("no rank owns " + Elements(first, end) + " of " + Called(name, tensor));
}

}  // namespace

std::optional<int64_t> ElemsOf(const std::vector<int64_t>& shape, DType dtype) {
  int64_t elems = 1;
  bool empty = false;
  for (const int64_t n : shape) {
    if (n < 0) return std::nullopt;
    empty = empty || n == 0;
    if (n != 0 && __builtin_mul_overflow(elems, n, &elems)) return std::nullopt;
  }
  if (elems > std::numeric_limits<int64_t>::max() / SizeOf(dtype)) return std::nullopt;
  return empty ? 0 : elems;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (const int64_t n : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + ")";
}

Status SortAndCheckPieces(const std::string& name, SavedTensor& tensor) {
  std::sort(tensor.pieces.begin(), tensor.pieces.end(),
            [](const SavedPiece& a, const SavedPiece& b) { return a.first_elem < b.first_elem; });
  int64_t end = 0;
  const SavedPiece* before = nullptr;
  for (const SavedPiece& piece : tensor.pieces) {
    ZPP_RETURN_IF_ERROR(CheckInside(name, tensor, piece));
    const int64_t piece_end = piece.first_elem + piece.elems;
    if (piece.first_elem < end) {
      return InvalidArgument("rank " + std::to_string(before->shard) + " and rank " +
                             std::to_string(piece.shard) + " both own " +
                             Elements(piece.first_elem, std::min(end, piece_end)) + " of " +
                             Called(name, tensor));
    }
    if (piece.first_elem > end && !tensor.partial) return Hole(name, tensor, end, piece.first_elem);
    end = piece_end;
    before = &piece;
  }
  return end == tensor.elems || tensor.partial ? Status() : Hole(name, tensor, end, tensor.elems);
}

}  // namespace zpp::internal
