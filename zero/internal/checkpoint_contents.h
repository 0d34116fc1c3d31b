// What all ranks together are about to save.
#pragma once

#include <span>

#include "common/status.h"
#include "zero/checkpoint.h"
#include "zero/internal/checkpoint_manifest.h"
#include "zero/internal/checkpoint_team.h"

namespace zpp::internal {

// Collective. The manifest without its shards, and without offsets and checksums of the pieces:
// who owns what. Every rank gets the same verdict; errors as SaveCheckpoint()'s.
Result<Manifest> AgreeOnContents(Team& team, const CheckpointMeta& meta,
                                 std::span<const StatePiece> pieces);

}  // namespace zpp::internal
