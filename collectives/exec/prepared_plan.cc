#include "collectives/exec/prepared_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "collectives/exec/tag.h"

namespace zpp {
namespace {

constexpr int kDepth = 2;      // two tickets per stage keep a link full while chunks are encoded
constexpr int kMaxLanes = 32;  // deeper trees of stages wait for a lane instead

Status CheckWritten(const Plan& plan) {
  const auto is_input = [&](const Span& span) {
    return plan.slots[span.slot].place == Place::kInput;
  };
  for (const Op& op : plan.ops) {
    if (is_input(op.out)) return Internal("a plan writes the input");
  }
  for (const Message& recv : plan.recvs) {
    if (is_input(recv.data)) return Internal("a plan receives into the input");
  }
  return {};
}

Status CheckLimits(const Plan& plan, int chunks) {
  if (static_cast<int64_t>(plan.stages.size()) > kMaxTagStages || chunks > kMaxTagChunks) {
    return InvalidArgument("a plan has more stages or chunks than a tag can tell apart");
  }
  for (const auto* messages : {&plan.sends, &plan.recvs}) {
    for (const Message& message : *messages) {
      // Encoded parts travel as one piece, plain ones perhaps each alone.
      if (plan.slots[message.data.slot].spec.compressed()) continue;
      if (message.data.count > kMaxTagPieces) {
        return InvalidArgument("a message of " + std::to_string(message.data.count) +
                               " uncompressed parts; a tag tells " + std::to_string(kMaxTagPieces) +
                               " apart: more tiers make messages of fewer parts");
      }
    }
  }
  return {};
}

// Parts as large as the largest chunk of each: a lane laid out for these holds every chunk.
Partition LargestChunks(const Partition& parts, const Plan& plan, int chunks) {
  const int64_t grid = parts.grid_elems();
  const auto largest = [&](int64_t elems) {
    const int64_t blocks = (elems + grid - 1) / grid;
    return std::min(elems, (blocks + chunks - 1) / chunks * grid);
  };
  if (plan.kind == CollectiveKind::kAllToAll) {
    return Partition::Pairwise(largest(parts.MaxPartElems()), plan.world, grid);
  }
  std::vector<int64_t> sizes;
  for (int64_t p = 0; p < parts.parts(); ++p) {
    sizes.push_back(largest(parts.Elems(static_cast<PartId>(p))));
  }
  return Partition::Sized(sizes, grid);
}

// splitmix64's finaliser.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The same element is quantized once per hop and contribution; each needs random numbers of its
// own, and they must not depend on which rank happens to hold the part. So the key names whose
// contribution it is: the tier it is about to cross and the domain, below that tier, that has been
// summed. The finished sum and what is gathered have one contribution only.
std::vector<uint64_t> NoiseSeeds(const PrepareArgs& args, std::span<const int> hop_tiers) {
  const Plan& plan = args.plan;
  std::vector<uint64_t> seeds(plan.stages.size(), Mix(~uint64_t{0}));
  for (size_t hop = 0; hop < std::min(hop_tiers.size(), seeds.size()); ++hop) {
    const int domain = args.topology->DomainId(hop_tiers[hop], plan.rank);
    seeds[hop] = Mix(static_cast<uint64_t>(hop_tiers[hop]) << 32 | static_cast<uint64_t>(domain));
  }
  return seeds;
}

bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllReduce;
}

Pipeline ChoosePipeline(size_t stages, int chunks) {
  const int wanted = kDepth * (static_cast<int>(stages) - 1) + 1;
  return {.chunks = chunks,
          .depth = kDepth,
          .lanes = std::clamp(wanted, 1, std::min(chunks, kMaxLanes))};
}

// No cache holds a vector of kStreamFrom_bytes; ranks of a node share theirs. With two and four
// ranks on two cores, streaming 16 MiB each was 1.1 to 2 times as fast.
bool IsLarge(const PrepareArgs& args) {
  const bool alone = args.topology->NodeGroup(args.plan.rank).size() == 1;
  return args.parts.TotalElems() * SizeOf(args.dtype) >= kStreamFrom_bytes / (alone ? 1 : 4);
}

// Parts of the output that the plan reads; sorted.
std::vector<PartId> PartsReadAgain(const Plan& plan) {
  std::vector<PartId> parts;
  const auto add = [&](const Span& span) {
    if (plan.slots[span.slot].place != Place::kOutput) return;
    for (uint32_t i = 0; i < span.count; ++i) parts.push_back(plan.PartOf(span, i));
  };
  for (const Span& input : plan.inputs) add(input);
  for (const Message& send : plan.sends) {
    if (send.data.count > 0) add(send.data);
  }
  std::sort(parts.begin(), parts.end());
  return parts;
}

void ChooseStores(const PrepareArgs& args, PreparedPlan& out) {
  const Plan& plan = args.plan;
  out.op_stores.assign(plan.ops.size(), StoreHint::kAuto);
  out.recv_stores.assign(plan.recvs.size(), StoreHint::kAuto);
  out.send_stores.assign(plan.sends.size(), StoreHint::kAuto);
  if (!IsLarge(args)) return;
  for (size_t i = 0; i < plan.sends.size(); ++i) {
    const Message& send = plan.sends[i];
    const bool of_caller = send.data.count > 0 && plan.slots[send.data.slot].place != Place::kStage;
    if (of_caller) out.send_stores[i] = StoreHint::kStream;
  }
  if (plan.output_is_shard) return;
  const std::vector<PartId> read_again = PartsReadAgain(plan);
  const auto stores = [&](const Span& span) {
    if (span.count == 0 || plan.slots[span.slot].place != Place::kOutput) return StoreHint::kAuto;
    for (uint32_t i = 0; i < span.count; ++i) {
      if (std::binary_search(read_again.begin(), read_again.end(), plan.PartOf(span, i))) {
        return StoreHint::kAuto;
      }
    }
    return StoreHint::kStream;
  };
  for (size_t i = 0; i < plan.ops.size(); ++i) out.op_stores[i] = stores(plan.ops[i].out);
  for (size_t i = 0; i < plan.recvs.size(); ++i) out.recv_stores[i] = stores(plan.recvs[i].data);
}

}  // namespace

Result<PreparedPlan> Prepare(PrepareArgs args) {
  ZPP_RETURN_IF_ERROR(CheckWritten(args.plan));
  ZPP_RETURN_IF_ERROR(CheckLimits(args.plan, args.chunks));
  PreparedPlan out;
  // A chunk's exchange is waited for when its next stage begins; an empty one is walked where the
  // plan has none.
  const bool one_more = args.keep_tail_in_flight && args.chunks > 1;
  const size_t stages = args.plan.stages.size() + (one_more ? 1 : 0);
  out.pipeline = ChoosePipeline(stages, args.chunks);
  out.dtype = args.dtype;
  out.digest = args.digest;
  out.feedback_shape = args.feedback_shape;
  out.events = Events(static_cast<int>(stages), out.pipeline);
  if (Reduces(args.plan.kind)) out.hop_tiers = HopTiers(*args.topology, args.flat);
  out.stage_seed = NoiseSeeds(args, out.hop_tiers);
  out.arena = AssignArena(args.plan, LargestChunks(args.parts, args.plan, args.chunks), 0, 1);
  out.arena.bytes = (out.arena.bytes + 63) / 64 * 64;
  for (const Slot& slot : args.plan.slots) {
    const bool stage = slot.place == Place::kStage;
    out.table_first.push_back(stage ? out.table_size : -1);
    if (stage) out.table_size += slot.parts.count + 1;
  }
  ChooseStores(args, out);
  out.plan = std::move(args.plan);
  out.parts = std::move(args.parts);
  return out;
}

}  // namespace zpp
