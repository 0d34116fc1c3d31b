// In place and in the arena: nothing is overwritten that is still needed.
#include <algorithm>
#include <unordered_map>

#include "collectives/plan/checker.h"
#include "collectives/plan/internal/arena_lives.h"

namespace zpp {
namespace {

// A moment within a plan. Within a stage: the ops before, then the start of the exchange, the ops
// during, its end.
using Moment = uint64_t;
constexpr Moment kStart = 0x7fffffff, kEnd = 0xffffffff;
Moment At(size_t stage, Moment within) { return (static_cast<Moment>(stage) << 32) | within; }

// Copies of the input to the very same place change nothing.
bool IsIdentityInPlace(const Plan& plan, const Op& op) {
  if (op.num_in != 1 || op.average) return false;
  const Slot& in = plan.slots[plan.inputs[op.first_in].slot];
  return in.place == Place::kInput && in.spec == plan.slots[op.out.slot].spec;
}

class InPlaceChecker {
 public:
  explicit InPlaceChecker(const Plan& plan) : plan_(plan) {}

  std::string Run() {
    for (size_t k = 0; k < plan_.stages.size(); ++k) RunStage(k);
    for (const auto& [part, written] : first_write_) {
      const auto read = last_read_.find(part);
      if (read == last_read_.end() || read->second <= written) continue;
      return "rank " + std::to_string(plan_.rank) + ", stage " +
             std::to_string(read->second >> 32) + ": in place, part " + std::to_string(part) +
             " is read after it was overwritten";
    }
    return "";
  }

 private:
  void Read(const Span& span, Moment when) {
    if (plan_.slots[span.slot].place != Place::kInput) return;
    for (uint32_t i = 0; i < span.count; ++i) {
      Moment& last = last_read_[plan_.PartOf(span, i)];
      last = std::max(last, when);
    }
  }
  void Write(const Span& span, Moment when) {
    if (plan_.slots[span.slot].place != Place::kOutput) return;
    for (uint32_t i = 0; i < span.count; ++i) {
      Moment& first = first_write_.try_emplace(plan_.PartOf(span, i), when).first->second;
      first = std::min(first, when);
    }
  }
  void RunStage(size_t k) {
    const Stage from = plan_.Begin(k), to = plan_.stages[k];
    for (uint32_t o = from.during_end; o < to.during_end; ++o) {
      const Op& op = plan_.ops[o];
      const Moment when = At(k, (o < to.before_end ? 1 : kStart + 1) + (o - from.during_end));
      for (uint32_t q = 0; q < op.num_in; ++q) Read(plan_.inputs[op.first_in + q], when);
      if (!IsIdentityInPlace(plan_, op)) Write(op.out, when);
    }
    for (uint32_t m = from.sends_end; m < to.sends_end; ++m) Read(plan_.sends[m].data, At(k, kEnd));
    // From the start of the exchange on, bytes may arrive at any moment.
    for (uint32_t m = from.recvs_end; m < to.recvs_end; ++m) {
      Write(plan_.recvs[m].data, At(k, kStart));
    }
  }

  const Plan& plan_;
  std::unordered_map<PartId, Moment> last_read_, first_write_;
};

}  // namespace

std::string CheckInPlace(const Plan& plan) { return InPlaceChecker(plan).Run(); }

std::string CheckArena(const Plan& plan, const Partition& parts, const Arena& arena, int chunk,
                       int chunks) {
  struct Area {
    uint32_t slot;
    int64_t begin, end;
    internal::SlotLife life;
  };
  const std::string who = "rank " + std::to_string(plan.rank) + ": slot ";
  const std::vector<internal::SlotLife> lives = internal::SlotLives(plan);
  std::vector<Area> areas;
  for (uint32_t s = 0; s < plan.slots.size(); ++s) {
    if (plan.slots[s].place != Place::kStage || lives[s].end < 0) continue;
    const int64_t bytes = internal::SlotBytes(plan, parts, s, chunk, chunks);
    const int64_t at = s < arena.offset_bytes.size() ? arena.offset_bytes[s] : -1;
    if (at < 0 || at % 64 != 0 || at + bytes > arena.bytes) {
      return who + std::to_string(s) + " does not lie in the arena";
    }
    if (bytes > 0) areas.push_back({s, at, at + bytes, lives[s]});
  }
  std::sort(areas.begin(), areas.end(),
            [](const Area& a, const Area& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < areas.size(); ++i) {
    for (size_t j = i + 1; j < areas.size() && areas[j].begin < areas[i].end; ++j) {
      if (areas[i].life.Meets(areas[j].life)) {
        return who + std::to_string(areas[i].slot) + " overlaps slot " +
               std::to_string(areas[j].slot) + " while both hold data";
      }
    }
  }
  return "";
}

}  // namespace zpp
