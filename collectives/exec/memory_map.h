// From (span, part, chunk) to bytes: the user's buffers and the lanes of a running plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/exec/prepared_plan.h"

namespace zpp {

struct UserMemory {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

// A chunk of one part where it lies: bare values when plain, header and payload when compressed.
struct Piece {
  int64_t elems = 0;
  int64_t bytes = 0;
  int64_t first_elem = 0;  // in the whole vector
  const std::byte* data = nullptr;
};

class MemoryMap {
 public:
  // Borrows all three until the next Bind. `lanes` has prepared.lanes_bytes().
  void Bind(const PreparedPlan& prepared, UserMemory user, std::byte* lanes);
  // The chunk takes its lane. Time: the parts in the plan's stage slots.
  void EnterChunk(int chunk);
  // Part `i` of `span`. The chunk must have entered.
  Piece At(const Span& span, uint32_t i, int chunk) const;
  // The same bytes to be written; the slot is never kInput (Prepare checked that).
  std::byte* Writable(const Span& span, uint32_t i, int chunk) const;
  // The bytes of parts [first, first + count) of the span, which lie back to back.
  int64_t RunBytes(const Span& span, uint32_t first, uint32_t count, int chunk) const;
  int LaneOf(int chunk) const { return chunk % prepared_->pipeline.lanes; }

 private:
  int64_t UserOffset_bytes(Place place, PartId part, const Slice& slice) const;
  std::byte* Stage(uint32_t slot, int64_t part_index, int chunk) const;

  const PreparedPlan* prepared_ = nullptr;
  UserMemory user_;
  std::byte* lanes_ = nullptr;
  std::vector<int64_t>
      offset_bytes_;  // per lane: table_size running offsets inside the stage slots
};

}  // namespace zpp
