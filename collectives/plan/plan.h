// A collective is data. A plan says what one rank encodes, sends, receives and sums, in stages; it
// holds no element counts, no chunks and no time, so one plan, and one proof, serves every size.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/dtype.h"
#include "common/status.h"
#include "quant/quant_spec.h"
#include "topology/topology.h"

namespace zpp {

enum class CollectiveKind : uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBroadcast,
  kBarrier
};
std::string_view CollectiveName(CollectiveKind kind);  // "all_gather", ...

enum class ReduceOp : uint8_t { kSum, kAvg };

// What a plan moves: parts, each encoded from its own start. All-gather, reduce-scatter,
// all-reduce: part i is the shard of rank i. All-to-all: part src*world+dst. Broadcast: part 0 is
// the vector.
using PartId = uint32_t;

// Elements [begin, end) inside a part.
struct Slice {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t elems() const { return end - begin; }
};

// The only place that knows element counts.
class Partition {
 public:
  // `elems` in `parts` parts on a grid of `grid_elems` (all part borders but the last lie on it).
  static Partition Even(int64_t elems, int parts, int64_t grid_elems);
  // Parts of the given sizes, one after another.
  static Partition Sized(std::span<const int64_t> part_elems, int64_t grid_elems);
  // world*world parts of `elems` each, for all-to-all.
  static Partition Pairwise(int64_t elems, int world, int64_t grid_elems);

  int64_t grid_elems() const {
    return grid_elems_;
  }  // largest block of any hop: chunk borders lie on it
  int64_t parts() const;
  int64_t Elems(PartId part) const;
  // In the whole vector. Pairwise: in the sender's buffer (block dst), or with `received` in the
  // receiver's (block src).
  int64_t Offset(PartId part, bool received = false) const;
  int64_t TotalElems() const;  // of the whole vector; pairwise: of one rank's buffer
  int64_t MaxPartElems() const;
  // Chunk c of C: proportional, so that big and small parts finish together; on the grid.
  Slice ChunkOf(PartId part, int chunk, int chunks) const;

 private:
  int64_t grid_elems_ = 1;
  std::vector<int64_t> offset_;  // parts+1 prefix sums; empty for pairwise
  int64_t pair_elems_ = 0;
  int64_t pair_world_ = 0;
};

enum class Place : uint8_t { kInput, kOutput, kStage };  // user memory, or a lane's arena
struct PartList {
  uint32_t first = 0, count = 0;  // into Plan::part_ids
};
// Parts back to back, each encoded alone in `spec` (kNone: plain values of spec.plain).
struct Slot {
  Place place = Place::kStage;
  QuantSpec spec;
  PartList parts;
};
// Consecutive parts of one slot.
struct Span {
  uint32_t slot = 0, first = 0, count = 0;
};
// At most one per (peer, direction, stage). Both sides skip a message of no bytes, unless it has no
// parts either (count 0): then it is a signal, and the barrier is made of those.
struct Message {
  int32_t peer = -1;
  uint8_t tier = 0;
  Span data;
};
// out = encode(out.spec, in_0 + in_1 + ...): fp32, in this order; `average` divides the sum by the
// world size before it is encoded. One operand is encode, decode, copy or recode; several are
// ReduceRecode. A copy from the input to the output changes nothing when the call is in place.
struct Op {
  Span out;
  uint32_t first_in = 0, num_in = 0;  // into Plan::inputs
  bool average = false;
};
// Ends of the ranges in ops, sends and recvs; each begins where the previous stage ended.
struct Stage {
  uint32_t before_end = 0;  // ops that must precede the exchange
  uint32_t during_end = 0;  // ops on older data, run while it travels
  uint32_t sends_end = 0, recvs_end = 0;
};

// One rank's share of a collective. stages.size() is equal on all ranks (a stage may be empty).
struct Plan {
  int32_t rank = 0, world = 0;
  CollectiveKind kind = CollectiveKind::kBarrier;
  std::string reason;            // why this algorithm, for people
  bool input_is_shard = false;   // the user's input holds the own part only
  bool output_is_shard = false;  // the user's output holds the own part only
  std::vector<PartId> part_ids;
  std::vector<Slot> slots;  // at most one kInput and one kOutput
  std::vector<Span> inputs;
  std::vector<Op> ops;
  std::vector<Message> sends, recvs;
  std::vector<Stage> stages;

  PartId PartOf(const Span& span, uint32_t i) const {
    return part_ids[slots[span.slot].parts.first + span.first + i];
  }
  Stage Begin(size_t stage) const { return stage == 0 ? Stage{} : stages[stage - 1]; }
  int64_t Bytes() const;  // memory of this plan
};

struct PlanRequest {
  const Topology* topology = nullptr;
  CollectiveKind kind = CollectiveKind::kBarrier;
  QuantSpec user;              // format kNone, the type of the caller's buffers
  std::vector<QuantSpec> hop;  // reductions: encoding per tier, innermost first
  QuantSpec gather;  // gather, broadcast, all-to-all: one encoding, never recoded on the way
  ReduceOp op = ReduceOp::kSum;
  int root = 0;  // broadcast
  // One hop over all ranks, encoded as the outermost one (hop.back()); messages keep the tiers of
  // `topology`.
  bool flat = false;
  // All-reduce in one round: everyone sends all to all, encoded as hop.back(), and sums in rank
  // order. `gather` plays no part. For small vectors.
  bool one_shot = false;
};

// Pure; in time proportional to the rank's own work (flat: to the world). A world of one never
// compresses: it copies. kInvalidArgument for a request that no plan serves.
Result<Plan> MakePlan(const PlanRequest& request, int rank);
// The plans of all ranks: for tests, the checker and the simulator.
Result<std::vector<Plan>> MakeAllPlans(const PlanRequest& request);

// The tiers that a reduction's stages cross, one stage after the other: those that join anything, 0
// for the one hop of a flat plan.
std::vector<int> HopTiers(const Topology& topology, bool flat);

// First element of `part` in the user's buffer at `place` (kInput, kOutput). 0 for the own part in
// a shard's buffer; in place the shard's buffer is itself part of the whole vector.
int64_t UserOffset(const Plan& plan, const Partition& parts, Place place, PartId part);

// Executor parameters, equal on all ranks: part of the agreed configuration.
struct Pipeline {
  int chunks = 1;
  int depth = 2;  // tickets per stage in flight
  int lanes = 1;  // arenas; a lane is reused only after its chunk's last Wait
};
struct Event {
  enum Kind : uint8_t { kBefore, kStart, kDuring, kWait } kind;
  int32_t chunk, stage;
};
// One total order, the same on every rank: chunk c runs stage k at tick start(c) + depth*k; in a
// tick the oldest chunk goes first: Wait(c,k-1) Before(c,k) Start(c,k) During(c,k).
std::vector<Event> Events(int stages, const Pipeline& pipeline);

// Where the stage slots of one chunk lie in a lane: offsets by life range (first write .. last
// use), 64-byte aligned.
struct Arena {
  std::vector<int64_t> offset_bytes;  // per slot; -1 for user slots
  int64_t bytes = 0;
};
Arena AssignArena(const Plan& plan, const Partition& parts, int chunk, int chunks);

// Bytes that `span` takes on the wire for one chunk: MessageBytes of each part, summed.
int64_t SpanBytes(const Plan& plan, const Partition& parts, const Span& span, int chunk,
                  int chunks);

// What this plan's rank sends per tier over all chunks, to the byte.
std::vector<int64_t> SentBytes(const Plan& plan, const Partition& parts, int chunks, int tiers);

// The plan for people: `zpp bw --explain`.
std::string ToText(const Plan& plan, const Topology& topology);

}  // namespace zpp
