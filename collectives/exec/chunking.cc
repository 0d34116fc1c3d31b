#include "collectives/exec/chunking.h"

#include <algorithm>

#include "collectives/exec/tag.h"

namespace zpp {
namespace {

// Large enough to keep a network full; through shared memory, small enough to stay in cache between
// the two copies. Half of it took 1.4 times as long between two ranks that gather 1 MiB each: every
// chunk is one more wait.
constexpr int64_t kPlainMessage_bytes = 512 * 1024;
// fp32 bytes behind one message: int8 makes it a quarter, int4 an eighth of that on the wire.
constexpr int64_t kCodedMessage_bytes = 1024 * 1024;
// Below this a message costs more in overhead than it hides in overlap.
constexpr int64_t kLeastPiece_bytes = 32 * 1024;
constexpr int64_t kCacheLine_bytes = 64;

}  // namespace

int64_t GridElems(std::span<const QuantSpec> hops, const QuantSpec& gather, DType user) {
  int64_t grid = kCacheLine_bytes / SizeOf(user);
  for (const QuantSpec& spec : hops) grid = std::max<int64_t>(grid, spec.block_elems);
  return std::max<int64_t>(grid, gather.block_elems);
}

int64_t PartsPerMessage(const Topology& topology) {
  for (int tier = 0; tier < topology.tiers(); ++tier) {
    if (topology.MaxChildren(tier + 1) > 1) return topology.NumDomains(tier + 1);
  }
  return 1;
}

int ChooseChunks(const ChunkArgs& args) {
  const int64_t grid = args.parts->grid_elems();
  const int64_t most = args.parts->MaxPartElems();
  const int64_t blocks = (most + grid - 1) / grid;
  int64_t piece_elems = args.chunk_bytes / 4;
  if (args.chunk_bytes == 0) {
    const int64_t message = args.compressed ? kCodedMessage_bytes : kPlainMessage_bytes;
    const int64_t piece = std::max(kLeastPiece_bytes, message / args.parts_per_message);
    piece_elems = piece / (args.compressed ? 4 : SizeOf(args.dtype));
  }
  piece_elems = std::max(piece_elems, grid);
  const int64_t wanted = (most + piece_elems - 1) / piece_elems;
  return static_cast<int>(std::max<int64_t>(1, std::min({wanted, blocks, kMaxTagChunks})));
}

}  // namespace zpp
