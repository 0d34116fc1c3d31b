// How a message of a collective is told from every other message in flight between the same two
// ranks.
#pragma once

#include <cstdint>

#include "collectives/transport/transport.h"

namespace zpp {

// Field widths, least significant first. They bound what one plan may hold; Prepare() checks it.
inline constexpr int kTagPiece_bits = 12;
inline constexpr int kTagStage_bits = 6;
inline constexpr int kTagChunk_bits = 12;
inline constexpr int kTagSequence_bits = 18;
static_assert(kTagPiece_bits + kTagStage_bits + kTagChunk_bits + kTagSequence_bits == kTagBits);

inline constexpr int64_t kMaxTagPieces = int64_t{1} << kTagPiece_bits;
inline constexpr int64_t kMaxTagStages = int64_t{1} << kTagStage_bits;
inline constexpr int64_t kMaxTagChunks = int64_t{1} << kTagChunk_bits;

// `sequence` counts a communicator's collectives and wraps: so many are never in flight at once.
// `piece` tells the runs of one plan message apart.
struct TagFields {
  uint64_t sequence = 0;
  int chunk = 0;
  int stage = 0;
  int64_t piece = 0;
};

constexpr Tag MakeTag(const TagFields& f) {
  constexpr uint64_t kSequenceMask = (uint64_t{1} << kTagSequence_bits) - 1;
  Tag tag = f.sequence & kSequenceMask;
  tag = tag << kTagChunk_bits | static_cast<Tag>(f.chunk);
  tag = tag << kTagStage_bits | static_cast<Tag>(f.stage);
  return tag << kTagPiece_bits | static_cast<Tag>(f.piece);
}

}  // namespace zpp
