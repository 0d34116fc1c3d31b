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
inline constexpr int kTagSequence_bits = 13;
inline constexpr int kTagGroup_bits = 5;
inline constexpr int kTagCall_bits =
    kTagPiece_bits + kTagStage_bits + kTagChunk_bits + kTagSequence_bits;
static_assert(kTagCall_bits + kTagGroup_bits == kTagBits);

inline constexpr int64_t kMaxTagPieces = int64_t{1} << kTagPiece_bits;
inline constexpr int64_t kMaxTagStages = int64_t{1} << kTagStage_bits;
inline constexpr int64_t kMaxTagChunks = int64_t{1} << kTagChunk_bits;
inline constexpr int kMaxTagGroups = 1 << kTagGroup_bits;

// `group` keeps communicators over one transport apart. `sequence` counts a communicator's
// collectives and wraps. `piece` tells the runs of one plan message apart. `digest` says what is
// called: ranks that call differently do not take each other's messages, however alike they are
// cut.
struct TagFields {
  int group = 0;
  uint64_t sequence = 0;
  uint64_t digest = 0;
  int chunk = 0;
  int stage = 0;
  int64_t piece = 0;
};

// Within a call tags differ, for the digest changes the same bits of all of them. Tags of two calls
// of one communicator may be equal. That is harmless: a rank posts one call after the other, to
// send as to receive, and equal tags between two ranks meet in that order.
constexpr Tag MakeTag(const TagFields& f) {
  constexpr uint64_t kSequenceMask = (uint64_t{1} << kTagSequence_bits) - 1;
  constexpr uint64_t kCallMask = (uint64_t{1} << kTagCall_bits) - 1;
  Tag tag = f.sequence & kSequenceMask;
  tag = tag << kTagChunk_bits | static_cast<Tag>(f.chunk);
  tag = tag << kTagStage_bits | static_cast<Tag>(f.stage);
  tag = tag << kTagPiece_bits | static_cast<Tag>(f.piece);
  tag ^= f.digest & kCallMask;
  return tag | static_cast<Tag>(f.group) << kTagCall_bits;
}

}  // namespace zpp
