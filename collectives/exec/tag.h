// How a message of a collective is told from every other message in flight between the same two
// ranks.
#pragma once

#include <cstdint>

#include "collectives/transport/transport.h"

namespace zpp {

// Field widths in bits, least significant first. They bound what one plan may hold; Prepare()
// checks it.
inline constexpr int kTagSender_bits = 14;
inline constexpr int kTagPiece_bits = 12;
inline constexpr int kTagStage_bits = 6;
inline constexpr int kTagChunk_bits = 12;
inline constexpr int kTagSequence_bits = 20;
static_assert(kTagSender_bits + kTagPiece_bits + kTagStage_bits + kTagChunk_bits +
                  kTagSequence_bits ==
              64);

inline constexpr int64_t kMaxTagWorld = int64_t{1} << kTagSender_bits;
inline constexpr int64_t kMaxTagPieces = int64_t{1} << kTagPiece_bits;
inline constexpr int64_t kMaxTagStages = int64_t{1} << kTagStage_bits;
inline constexpr int64_t kMaxTagChunks = int64_t{1} << kTagChunk_bits;

// `sequence` counts a communicator's collectives and wraps: a million of them are never in flight
// at once. `piece` tells the runs of one plan message apart.
struct TagFields {
  uint64_t sequence = 0;
  int chunk = 0;
  int stage = 0;
  int64_t piece = 0;
  int sender = 0;
};

constexpr Tag MakeTag(const TagFields& f) {
  constexpr uint64_t kSequenceMask = (uint64_t{1} << kTagSequence_bits) - 1;
  Tag tag = f.sequence & kSequenceMask;
  tag = tag << kTagChunk_bits | static_cast<Tag>(f.chunk);
  tag = tag << kTagStage_bits | static_cast<Tag>(f.stage);
  tag = tag << kTagPiece_bits | static_cast<Tag>(f.piece);
  return tag << kTagSender_bits | static_cast<Tag>(f.sender);
}

}  // namespace zpp
