#include "tests/collectives/plan_interpreter.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "quant/codec.h"
#include "quant/wire.h"

namespace zpp::test {
namespace {

constexpr std::byte kPoison{0xA5};

struct Lane {
  Arena arena;
  Bytes memory;
};

// What one part takes of one chunk, wherever it lies.
struct Piece {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  int64_t elems = 0;
};

class RankState {
 public:
  RankState(const Plan& plan, const PlanRequest& request, const Partition& parts,
            const Bytes& input, const InterpretOptions& options)
      : plan_(plan), parts_(parts), options_(options), input_(input) {
    const int64_t size = SizeOf(request.user.plain);
    elem_bytes_ = size;
    if (!options.in_place) {
      output_.assign(static_cast<size_t>(OutputElems(plan, parts) * size), kPoison);
      return;
    }
    output_.assign(static_cast<size_t>(parts.TotalElems() * size), kPoison);
    const int64_t at = plan.input_is_shard ? parts.Offset(static_cast<PartId>(plan.rank)) : 0;
    if (!input.empty()) std::memcpy(output_.data() + at * size, input.data(), input.size());
  }

  void OpenLane(int chunk) {
    Lane& lane = lanes_[chunk];
    lane.arena = AssignArena(plan_, parts_, chunk, options_.pipeline.chunks);
    lane.memory.assign(static_cast<size_t>(lane.arena.bytes), kPoison);
  }
  void CloseLane(int chunk) { lanes_.erase(chunk); }
  int lanes() const { return static_cast<int>(lanes_.size()); }

  Piece PieceOf(const Span& span, uint32_t index, int chunk) {
    const Slot& slot = plan_.slots[span.slot];
    const PartId part = plan_.PartOf(span, index);
    const Slice slice = parts_.ChunkOf(part, chunk, options_.pipeline.chunks);
    const int64_t bytes = MessageBytes(slot.spec, slice.elems());
    if (slot.place == Place::kStage) {
      const Span before = {span.slot, 0, span.first + index};
      Lane& lane = lanes_.at(chunk);
      const int64_t at = lane.arena.offset_bytes[span.slot] +
                         SpanBytes(plan_, parts_, before, chunk, options_.pipeline.chunks);
      return {lane.memory.data() + at, bytes, slice.elems()};
    }
    const int64_t first =
        options_.in_place ? parts_.Offset(part) : UserOffset(plan_, parts_, slot.place, part);
    const bool from_input = slot.place == Place::kInput && !options_.in_place;
    Bytes& memory = from_input ? input_ : output_;
    return {memory.data() + (first + slice.begin) * elem_bytes_, bytes, slice.elems()};
  }

  // "" or what is wrong.
  std::string Run(const Op& op, int chunk) {
    for (uint32_t i = 0; i < op.out.count; ++i) {
      const std::string fault = RunPart(op, i, chunk);
      if (!fault.empty()) return fault;
    }
    return "";
  }

  Bytes Output() const {
    if (!options_.in_place) return output_;
    const int64_t at = plan_.output_is_shard ? parts_.Offset(static_cast<PartId>(plan_.rank)) : 0;
    const auto begin = output_.begin() + at * elem_bytes_;
    return Bytes(begin, begin + OutputElems(plan_, parts_) * elem_bytes_);
  }
  const Bytes& input() const { return input_; }

 private:
  std::string RunPart(const Op& op, uint32_t index, int chunk) {
    const Piece out = PieceOf(op.out, index, chunk);
    if (out.elems == 0) return "";
    const QuantSpec& spec = plan_.slots[op.out.slot].spec;
    const Span& first = plan_.inputs[op.first_in];
    if (op.num_in == 1 && !op.average && plan_.slots[first.slot].spec == spec) {
      const Piece in = PieceOf(first, index, chunk);
      std::memmove(out.data, in.data, static_cast<size_t>(in.bytes));
      return "";
    }
    std::vector<float> sum(static_cast<size_t>(out.elems));
    for (uint32_t q = 0; q < op.num_in; ++q) {
      const std::string fault = Add(plan_.inputs[op.first_in + q], index, chunk, q == 0, &sum);
      if (!fault.empty()) return fault;
    }
    if (op.average) {
      for (float& x : sum) x /= static_cast<float>(plan_.world);
    }
    return Write(spec, sum, out);
  }

  std::string Add(const Span& span, uint32_t index, int chunk, bool first,
                  std::vector<float>* sum) {
    const QuantSpec& spec = plan_.slots[span.slot].spec;
    const Piece in = PieceOf(span, index, chunk);
    std::span<const std::byte> payload(in.data, static_cast<size_t>(in.bytes));
    if (spec.compressed()) {
      const Result<WireHeader> header = ReadWireHeader(payload);
      if (!header.ok()) return "bad header: " + header.status().message();
      if (*header != WireHeader{spec, in.elems}) return "the header tells another spec or length";
      payload = payload.subspan(static_cast<size_t>(kWireHeader_bytes));
    }
    std::vector<float> values(sum->size());
    const Status status = Decode(spec, payload, {DType::kF32, values.data(), in.elems});
    if (!status.ok()) return status.message();
    for (size_t i = 0; i < values.size(); ++i) {
      (*sum)[i] = first ? values[i] : (*sum)[i] + values[i];
    }
    return "";
  }

  static std::string Write(const QuantSpec& spec, const std::vector<float>& values,
                           const Piece& out) {
    std::span<std::byte> payload(out.data, static_cast<size_t>(out.bytes));
    if (spec.compressed()) {
      const size_t header = static_cast<size_t>(kWireHeader_bytes);
      WriteWireHeader({spec, out.elems}, payload.first(header));
      payload = payload.subspan(header);
    }
    return Encode(spec, {DType::kF32, values.data(), out.elems}, payload).message();
  }

  const Plan& plan_;
  const Partition& parts_;
  const InterpretOptions& options_;
  Bytes input_, output_;
  int64_t elem_bytes_ = 1;
  std::map<int, Lane> lanes_;  // by chunk
};

class Interpreter {
 public:
  Interpreter(std::span<const Plan> plans, const PlanRequest& request, const Partition& parts,
              std::span<const Bytes> input, const InterpretOptions& options)
      : plans_(plans), random_(options.seed) {
    outcome_.tier_bytes.assign(static_cast<size_t>(request.topology->tiers()), 0);
    for (size_t r = 0; r < plans.size(); ++r) {
      ranks_.emplace_back(plans[r], request, parts, input[r], options);
      events_.push_back(Events(static_cast<int>(plans[r].stages.size()), options.pipeline));
    }
    at_.assign(plans.size(), 0);
  }

  Outcome Run(std::span<const Bytes> input) {
    std::vector<size_t> order(plans_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    while (outcome_.fault.empty() && !Done()) {
      bool moved = false;
      std::shuffle(order.begin(), order.end(), random_);
      for (size_t rank : order) moved = Advance(rank, 1 + random_() % 6) || moved;
      if (!moved) outcome_.fault = "nobody can go on";
    }
    for (size_t r = 0; r < ranks_.size() && outcome_.fault.empty(); ++r) {
      outcome_.output.push_back(ranks_[r].Output());
      if (ranks_[r].input() != input[r]) outcome_.fault = "an input was modified";
    }
    return std::move(outcome_);
  }

 private:
  struct Wire {
    const Message* send = nullptr;
    const Message* recv = nullptr;
    bool arrived = false;
  };

  bool Done() const {
    for (size_t r = 0; r < at_.size(); ++r) {
      if (at_[r] < events_[r].size()) return false;
    }
    return true;
  }

  // Up to `steps` events of one rank. True when something moved.
  bool Advance(size_t rank, uint64_t steps) {
    bool moved = false;
    for (; steps > 0 && at_[rank] < events_[rank].size() && outcome_.fault.empty(); --steps) {
      const Event& event = events_[rank][at_[rank]];
      if (event.kind == Event::kWait) {
        bool progressed = false;
        const bool done = TryWait(rank, event, &progressed);
        moved = moved || progressed;
        if (!done) return moved;
      } else {
        RunEvent(rank, event);
      }
      ++at_[rank];
      moved = true;
    }
    return moved;
  }

  void RunEvent(size_t rank, const Event& event) {
    const Plan& plan = plans_[rank];
    const Stage from = plan.Begin(static_cast<size_t>(event.stage));
    const Stage to = plan.stages[static_cast<size_t>(event.stage)];
    if (event.kind == Event::kBefore && event.stage == 0) {
      ranks_[rank].OpenLane(event.chunk);
      outcome_.max_lanes = std::max(outcome_.max_lanes, ranks_[rank].lanes());
    }
    if (event.kind == Event::kStart) return Start(rank, event, from, to);
    const bool before = event.kind == Event::kBefore;
    const uint32_t begin = before ? from.during_end : to.before_end;
    const uint32_t end = before ? to.before_end : to.during_end;
    for (uint32_t o = begin; o < end && outcome_.fault.empty(); ++o) {
      outcome_.fault = ranks_[rank].Run(plan.ops[o], event.chunk);
    }
  }

  Wire& WireOf(size_t from, size_t to, const Event& event) {
    return wires_[{from, to, event.chunk, event.stage}];
  }

  void Start(size_t rank, const Event& event, const Stage& from, const Stage& to) {
    const Plan& plan = plans_[rank];
    for (uint32_t m = from.sends_end; m < to.sends_end; ++m) {
      WireOf(rank, static_cast<size_t>(plan.sends[m].peer), event).send = &plan.sends[m];
    }
    for (uint32_t m = from.recvs_end; m < to.recvs_end; ++m) {
      const Message& recv = plan.recvs[m];
      WireOf(static_cast<size_t>(recv.peer), rank, event).recv = &recv;
      for (uint32_t i = 0; i < recv.data.count; ++i) {
        const Piece piece = ranks_[rank].PieceOf(recv.data, i, event.chunk);
        std::fill_n(piece.data, piece.bytes, kPoison);
      }
    }
  }

  // True when all messages of the stage have arrived. Each may be late by the toss of a coin.
  bool TryWait(size_t rank, const Event& event, bool* progressed) {
    const Plan& plan = plans_[rank];
    const Stage from = plan.Begin(static_cast<size_t>(event.stage));
    const Stage to = plan.stages[static_cast<size_t>(event.stage)];
    bool all = true;
    auto need = [&](size_t sender, size_t receiver) {
      Wire& wire = WireOf(sender, receiver, event);
      if (wire.arrived) return;
      const bool ready = wire.send != nullptr && wire.recv != nullptr;
      *progressed = *progressed || ready;
      if (ready && random_() % 2 == 0) {
        Deliver(wire, sender, receiver, event.chunk);
      } else {
        all = false;
      }
    };
    for (uint32_t m = from.sends_end; m < to.sends_end; ++m) {
      need(rank, static_cast<size_t>(plan.sends[m].peer));
    }
    for (uint32_t m = from.recvs_end; m < to.recvs_end; ++m) {
      need(static_cast<size_t>(plan.recvs[m].peer), rank);
    }
    if (all && event.stage + 1 == static_cast<int>(plan.stages.size())) {
      ranks_[rank].CloseLane(event.chunk);
    }
    return all;
  }

  void Deliver(Wire& wire, size_t sender, size_t receiver, int chunk) {
    wire.arrived = true;
    ++outcome_.messages;
    for (uint32_t i = 0; i < wire.send->data.count; ++i) {
      const Piece from = ranks_[sender].PieceOf(wire.send->data, i, chunk);
      const Piece to = ranks_[receiver].PieceOf(wire.recv->data, i, chunk);
      if (from.bytes != to.bytes) outcome_.fault = "a message of another length than its receive";
      if (!outcome_.fault.empty()) return;
      if (from.bytes > 0) std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes));
      outcome_.tier_bytes[wire.send->tier] += from.bytes;
    }
  }

  std::span<const Plan> plans_;
  std::mt19937 random_;
  std::vector<RankState> ranks_;
  std::vector<std::vector<Event>> events_;
  std::vector<size_t> at_;
  std::map<std::tuple<size_t, size_t, int, int>, Wire> wires_;  // from, to, chunk, stage
  Outcome outcome_;
};

}  // namespace

int64_t InputElems(const Plan& plan, const Partition& parts, const PlanRequest& request) {
  if (plan.kind == CollectiveKind::kBarrier) return 0;
  if (plan.kind == CollectiveKind::kBroadcast && plan.rank != request.root) return 0;
  return plan.input_is_shard ? parts.Elems(static_cast<PartId>(plan.rank)) : parts.TotalElems();
}

int64_t OutputElems(const Plan& plan, const Partition& parts) {
  if (plan.kind == CollectiveKind::kBarrier) return 0;
  return plan.output_is_shard ? parts.Elems(static_cast<PartId>(plan.rank)) : parts.TotalElems();
}

Outcome Interpret(std::span<const Plan> plans, const PlanRequest& request, const Partition& parts,
                  std::span<const Bytes> input, const InterpretOptions& options) {
  return Interpreter(plans, request, parts, input, options).Run(input);
}

}  // namespace zpp::test
