#include "collectives/exec/memory_map.h"

#include "quant/wire.h"

namespace zpp {

void MemoryMap::Bind(const PreparedPlan& prepared, UserMemory user, std::byte* lanes) {
  prepared_ = &prepared;
  user_ = user;
  lanes_ = lanes;
  offset_bytes_.resize(static_cast<size_t>(prepared.table_size * prepared.pipeline.lanes));
}

void MemoryMap::EnterChunk(int chunk) {
  const Plan& plan = prepared_->plan;
  int64_t* table = offset_bytes_.data() + LaneOf(chunk) * prepared_->table_size;
  for (const Slot& slot : plan.slots) {
    if (slot.place != Place::kStage) continue;
    int64_t at = 0;
    for (uint32_t i = 0; i < slot.parts.count; ++i) {
      *table++ = at;
      const PartId part = plan.part_ids[slot.parts.first + i];
      at += MessageBytes(slot.spec,
                         prepared_->parts.ChunkOf(part, chunk, prepared_->pipeline.chunks).elems());
    }
    *table++ = at;
  }
}

int64_t MemoryMap::UserOffset_bytes(Place place, PartId part, const Slice& slice) const {
  return (UserOffset(prepared_->plan, prepared_->parts, place, part) + slice.begin) *
         SizeOf(prepared_->dtype);
}

std::byte* MemoryMap::Stage(uint32_t slot, int64_t part_index, int chunk) const {
  const int lane = LaneOf(chunk);
  const int64_t* table =
      offset_bytes_.data() + lane * prepared_->table_size + prepared_->table_first[slot];
  return lanes_ + lane * prepared_->arena.bytes + prepared_->arena.offset_bytes[slot] +
         table[part_index];
}

Piece MemoryMap::At(const Span& span, uint32_t i, int chunk) const {
  const Plan& plan = prepared_->plan;
  const Slot& slot = plan.slots[span.slot];
  const PartId part = plan.PartOf(span, i);
  const Slice slice = prepared_->parts.ChunkOf(part, chunk, prepared_->pipeline.chunks);
  Piece piece;
  piece.elems = slice.elems();
  piece.bytes = MessageBytes(slot.spec, piece.elems);
  const bool pairwise = plan.kind == CollectiveKind::kAllToAll;
  piece.first_elem = (pairwise ? 0 : prepared_->parts.Offset(part)) + slice.begin;
  if (slot.place == Place::kStage) {
    piece.data = Stage(span.slot, span.first + i, chunk);
  } else {
    const std::byte* base = slot.place == Place::kInput ? user_.in : user_.out;
    piece.data = base + UserOffset_bytes(slot.place, part, slice);  // null + 0 when all is empty
  }
  return piece;
}

std::byte* MemoryMap::Writable(const Span& span, uint32_t i, int chunk) const {
  const Slot& slot = prepared_->plan.slots[span.slot];
  if (slot.place == Place::kStage) return Stage(span.slot, span.first + i, chunk);
  const PartId part = prepared_->plan.PartOf(span, i);
  const Slice slice = prepared_->parts.ChunkOf(part, chunk, prepared_->pipeline.chunks);
  return user_.out + UserOffset_bytes(slot.place, part, slice);
}

int64_t MemoryMap::RunBytes(const Span& span, uint32_t first, uint32_t count, int chunk) const {
  const Slot& slot = prepared_->plan.slots[span.slot];
  if (slot.place == Place::kStage) {
    const int64_t begin = int64_t{span.first} + first;
    return Stage(span.slot, begin + count, chunk) - Stage(span.slot, begin, chunk);
  }
  int64_t bytes = 0;
  for (uint32_t i = first; i < first + count; ++i) bytes += At(span, i, chunk).bytes;
  return bytes;
}

}  // namespace zpp
