// Where the stage slots of one chunk lie: first fit over their life ranges.
#include <algorithm>
#include <limits>

#include "collectives/plan/internal/arena_lives.h"
#include "collectives/plan/plan.h"

namespace zpp {
namespace internal {

std::vector<SlotLife> SlotLives(const Plan& plan) {
  std::vector<SlotLife> lives(plan.slots.size());
  auto touch = [&](const Span& span, int moment) {
    SlotLife& life = lives[span.slot];
    life.begin = std::min(life.begin, moment);
    life.end = std::max(life.end, moment);
  };
  for (size_t k = 0; k < plan.stages.size(); ++k) {
    const Stage from = plan.Begin(k), to = plan.stages[k];
    const int before = static_cast<int>(2 * k), exchange = before + 1;
    for (uint32_t o = from.during_end; o < to.during_end; ++o) {
      const Op& op = plan.ops[o];
      const int moment = o < to.before_end ? before : exchange;
      touch(op.out, moment);
      for (uint32_t q = 0; q < op.num_in; ++q) touch(plan.inputs[op.first_in + q], moment);
    }
    for (uint32_t m = from.sends_end; m < to.sends_end; ++m) touch(plan.sends[m].data, exchange);
    for (uint32_t m = from.recvs_end; m < to.recvs_end; ++m) touch(plan.recvs[m].data, exchange);
  }
  return lives;
}

int64_t SlotBytes(const Plan& plan, const Partition& parts, uint32_t slot, int chunk, int chunks) {
  const Span whole = {slot, 0, plan.slots[slot].parts.count};
  constexpr int64_t kAlign_bytes = 64;
  return (SpanBytes(plan, parts, whole, chunk, chunks) + kAlign_bytes - 1) / kAlign_bytes *
         kAlign_bytes;
}

}  // namespace internal

namespace {

struct Placed {
  int64_t begin_bytes, end_bytes;
  internal::SlotLife life;
};

// The lowest place where `bytes` fit among those that live at the same time; `placed` ascends.
int64_t FirstFit(const std::vector<Placed>& placed, const internal::SlotLife& life, int64_t bytes) {
  int64_t at = 0;
  for (const Placed& other : placed) {
    if (!other.life.Meets(life)) continue;
    if (at + bytes <= other.begin_bytes) break;
    at = std::max(at, other.end_bytes);
  }
  return at;
}

// Slots that begin and end together (the receives of a hop) are placed as one
// block, so that a plan of thousands of receives costs no quadratic search.
struct Group {
  internal::SlotLife life;
  std::vector<uint32_t> slots;
  int64_t bytes = 0;
};

std::vector<Group> GroupByLife(const Plan& plan, const std::vector<internal::SlotLife>& lives) {
  std::vector<Group> groups;
  for (uint32_t s = 0; s < plan.slots.size(); ++s) {
    if (plan.slots[s].place != Place::kStage || lives[s].end < 0) continue;
    auto it = std::find_if(groups.begin(), groups.end(),
                           [&](const Group& g) { return g.life == lives[s]; });
    if (it == groups.end()) it = groups.insert(it, Group{lives[s], {}, 0});
    it->slots.push_back(s);
  }
  return groups;
}

}  // namespace

Arena AssignArena(const Plan& plan, const Partition& parts, int chunk, int chunks) {
  Arena arena;
  arena.offset_bytes.assign(plan.slots.size(), -1);
  std::vector<Placed> placed;
  for (Group& group : GroupByLife(plan, internal::SlotLives(plan))) {
    std::vector<int64_t> bytes;
    for (uint32_t s : group.slots) {
      bytes.push_back(internal::SlotBytes(plan, parts, s, chunk, chunks));
      group.bytes += bytes.back();
    }
    int64_t at = FirstFit(placed, group.life, group.bytes);
    const Placed whole = {at, at + group.bytes, group.life};
    for (size_t i = 0; i < group.slots.size(); ++i) {
      arena.offset_bytes[group.slots[i]] = at;
      at += bytes[i];
    }
    arena.bytes = std::max(arena.bytes, whole.end_bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), whole,
                                   [](const Placed& a, const Placed& b) {
                                     return a.begin_bytes < b.begin_bytes;
                                   }),
                  whole);
  }
  return arena;
}

}  // namespace zpp
