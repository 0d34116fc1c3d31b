#include "collectives/exec/plan_walker.h"

#include <algorithm>
#include <string>

#include "collectives/exec/message_runs.h"
#include "collectives/exec/tag.h"
#include "quant/wire.h"

namespace zpp {
namespace {

// Plain work can be cut anywhere: small enough that the transport is seen to often, large enough
// that a cut is free.
constexpr int64_t kCopySlice_bytes = 256 * 1024;
constexpr int64_t kReduceSlice_elems = 64 * 1024;

std::span<const std::byte> PayloadOf(const QuantSpec& spec, const Piece& piece) {
  const int64_t header = spec.compressed() ? kWireHeader_bytes : 0;
  return {piece.data + header, static_cast<size_t>(piece.bytes - header)};
}

Status Corrupt(int peer, const std::string& what) {
  return DataLoss("a message of rank " + std::to_string(peer) + " " + what);
}

}  // namespace

void PlanWalker::Begin(const PreparedPlan& prepared, const WalkArgs& args) {
  prepared_ = &prepared;
  args_ = args;
  map_.Bind(prepared, args.user, args.lanes);
  at_ = 0;
  if (!done()) Enter();
}

void PlanWalker::Next() {
  ++at_;
  if (!done()) Enter();
}

Stage PlanWalker::Before(int stage) const {
  const auto& stages = prepared_->plan.stages;
  return prepared_->plan.Begin(std::min(static_cast<size_t>(stage), stages.size()));
}

void PlanWalker::Enter() {
  tasks_.clear();
  operands_.clear();
  const Event& e = event();
  const Stage begin = Before(e.stage);
  const Stage stage = Before(e.stage + 1);
  switch (e.kind) {
    case Event::kBefore:
      if (e.stage == 0) map_.EnterChunk(e.chunk);
      for (uint32_t op = begin.during_end; op < stage.before_end; ++op) AddOp(op);
      break;
    case Event::kDuring:
      for (uint32_t op = stage.before_end; op < stage.during_end; ++op) AddOp(op);
      break;
    case Event::kStart:
    case Event::kWait:
      return;
  }
  const Operand* in = operands_.data();  // only now do they stay where they are
  for (CodecTask& task : tasks_) {
    task.in = {in, task.in.size()};
    in += task.in.size();
  }
}

void PlanWalker::AddOp(uint32_t index) {
  const Op& op = prepared_->plan.ops[index];
  bool plain = !SpecOf(op.out).compressed();
  for (uint32_t i = 0; i < op.num_in; ++i) {
    plain = plain && !SpecOf(prepared_->plan.inputs[op.first_in + i]).compressed();
  }
  for (uint32_t part = 0; part < op.out.count; ++part) {
    if (map_.At(op.out, part, event().chunk).elems == 0) continue;
    if (plain) {
      AddPlain(index, part);
    } else {
      AddCoded(index, part);
    }
  }
}

CodecTask& PlanWalker::NewTask(CodecTask::Kind kind, uint32_t op) {
  CodecTask& task = tasks_.emplace_back();
  const Op& from = prepared_->plan.ops[op];
  task.kind = kind;
  task.op = op;
  task.out_spec = SpecOf(from.out);
  task.stores = prepared_->op_stores[op];
  task.in = {static_cast<const Operand*>(nullptr), from.num_in};
  task.divisor = from.average ? static_cast<float>(prepared_->plan.world) : 1.0f;
  return task;
}

void PlanWalker::AddPlain(uint32_t index, uint32_t part) {
  const Op& op = prepared_->plan.ops[index];
  const int chunk = event().chunk;
  const Piece out = map_.At(op.out, part, chunk);
  std::byte* to = map_.Writable(op.out, part, chunk);
  const Span& first = prepared_->plan.inputs[op.first_in];
  if (op.num_in == 1 && !op.average && SpecOf(first).plain == SpecOf(op.out).plain) {
    const Piece in = map_.At(first, part, chunk);
    AddCopy(index, to, {in.data, static_cast<size_t>(in.bytes)});
    return;
  }
  const int64_t out_size = SizeOf(SpecOf(op.out).plain);
  for (int64_t begin = 0; begin < out.elems; begin += kReduceSlice_elems) {
    const int64_t elems = std::min(kReduceSlice_elems, out.elems - begin);
    CodecTask& task = NewTask(CodecTask::Kind::kReduce, index);
    task.out = {to + begin * out_size, static_cast<size_t>(elems * out_size)};
    task.elems = elems;
    for (uint32_t i = 0; i < op.num_in; ++i) {
      const Span& span = prepared_->plan.inputs[op.first_in + i];
      const int64_t size = SizeOf(SpecOf(span).plain);
      const std::byte* data = map_.At(span, part, chunk).data + begin * size;
      operands_.push_back({SpecOf(span), {data, static_cast<size_t>(elems * size)}});
    }
  }
}

void PlanWalker::AddCopy(uint32_t op, std::byte* out, std::span<const std::byte> in) {
  if (out == in.data()) return;  // in place
  while (!in.empty()) {
    const bool grows =
        !tasks_.empty() && tasks_.back().kind == CodecTask::Kind::kCopy && tasks_.back().op == op &&
        tasks_.back().out.data() + tasks_.back().out.size() == out &&
        operands_.back().payload.data() + operands_.back().payload.size() == in.data() &&
        static_cast<int64_t>(tasks_.back().out.size()) < kCopySlice_bytes;
    if (!grows) {
      NewTask(CodecTask::Kind::kCopy, op).out = {out, 0};
      operands_.push_back({SpecOf(prepared_->plan.ops[op].out), {in.data(), 0}});
    }
    CodecTask& task = tasks_.back();
    const size_t room = static_cast<size_t>(kCopySlice_bytes) - task.out.size();
    const size_t bytes = std::min(room, in.size());
    task.out = {task.out.data(), task.out.size() + bytes};
    operands_.back().payload = {operands_.back().payload.data(), task.out.size()};
    out += bytes;
    in = in.subspan(bytes);
  }
}

void PlanWalker::AddCoded(uint32_t index, uint32_t part) {
  const Op& op = prepared_->plan.ops[index];
  const int chunk = event().chunk;
  const Piece out = map_.At(op.out, part, chunk);
  std::byte* to = map_.Writable(op.out, part, chunk);
  const Span& first = prepared_->plan.inputs[op.first_in];
  const bool coded_out = SpecOf(op.out).compressed();
  const bool single = op.num_in == 1 && !op.average;
  CodecTask::Kind kind = CodecTask::Kind::kReduce;
  if (single && coded_out && !SpecOf(first).compressed()) kind = CodecTask::Kind::kEncode;
  if (single && !coded_out) kind = CodecTask::Kind::kDecode;

  CodecTask& task = NewTask(kind, index);
  const int64_t header = coded_out ? kWireHeader_bytes : 0;
  task.header = coded_out ? to : nullptr;
  task.out = {to + header, static_cast<size_t>(out.bytes - header)};
  task.elems = out.elems;
  task.noise = args_.noise;
  task.noise.seed ^= prepared_->stage_seed[static_cast<size_t>(event().stage)];
  task.noise.first_elem += static_cast<uint64_t>(out.first_elem);
  if (coded_out && args_.feedback != nullptr) AddResidual(task, op.out, part);
  for (uint32_t i = 0; i < op.num_in; ++i) {
    const Span& span = prepared_->plan.inputs[op.first_in + i];
    operands_.push_back({SpecOf(span), PayloadOf(SpecOf(span), map_.At(span, part, chunk))});
  }
}

void PlanWalker::AddResidual(CodecTask& task, const Span& out, uint32_t part) const {
  const auto stage = static_cast<size_t>(event().stage);
  const auto& tiers = prepared_->hop_tiers;
  const int tier = stage < tiers.size() ? tiers[stage] : ReduceFeedback::kGather;
  const PartId id = prepared_->plan.PartOf(out, part);
  ReduceFeedback::Piece* piece = args_.feedback->Find(tier, id);
  if (piece == nullptr) return;
  task.residual = &piece->residual;
  task.first_residual =
      prepared_->parts.ChunkOf(id, event().chunk, prepared_->pipeline.chunks).begin;
}

PlanWalker::Batch PlanWalker::Messages() {
  sends_.clear();
  send_tiers_.clear();
  recvs_.clear();
  const Stage begin = Before(event().stage);
  const Stage stage = Before(event().stage + 1);
  for (uint32_t m = begin.sends_end; m < stage.sends_end; ++m) AddSends(m);
  for (uint32_t m = begin.recvs_end; m < stage.recvs_end; ++m) AddReceives(m);
  return {sends_, send_tiers_, recvs_};
}

namespace {

// Calls add(piece number, first byte, bytes) for every run of `message` that carries bytes, and
// once for a message that has no parts at all: a barrier's.
template <typename At, typename Add>
void ForRuns(const PreparedPlan& prepared, const Message& message, int chunk, At at, Add add) {
  if (message.data.count == 0) add(int64_t{0}, nullptr, size_t{0});
  int64_t piece = 0;
  for (uint32_t i = 0; i < message.data.count;) {
    const PartRun run = NextRun(prepared, message.data, i, chunk);
    const auto [data, bytes] = at(run);
    if (bytes > 0) add(piece++, data, static_cast<size_t>(bytes));
    i += run.count;
  }
}

}  // namespace

Tag PlanWalker::TagOf(int64_t piece) const {
  return MakeTag({.group = args_.group,
                  .sequence = args_.sequence,
                  .digest = prepared_->digest,
                  .chunk = event().chunk,
                  .stage = event().stage,
                  .piece = piece});
}

int PlanWalker::NameOf(int peer) const {
  return args_.root_ranks.empty() ? peer : args_.root_ranks[static_cast<size_t>(peer)];
}

void PlanWalker::AddSends(uint32_t index) {
  const Event& e = event();
  const Message& message = prepared_->plan.sends[index];
  const auto at = [&](const PartRun& run) {
    const Piece first = map_.At(message.data, run.first, e.chunk);
    return std::pair(first.data, map_.RunBytes(message.data, run.first, run.count, e.chunk));
  };
  ForRuns(*prepared_, message, e.chunk, at,
          [&](int64_t piece, const std::byte* data, size_t bytes) {
            sends_.push_back(
                {message.peer, TagOf(piece), {data, bytes}, prepared_->send_stores[index]});
            send_tiers_.push_back(message.tier);
          });
}

void PlanWalker::AddReceives(uint32_t index) {
  const Event& e = event();
  const Message& message = prepared_->plan.recvs[index];
  const auto at = [&](const PartRun& run) {
    return std::pair(map_.Writable(message.data, run.first, e.chunk),
                     map_.RunBytes(message.data, run.first, run.count, e.chunk));
  };
  ForRuns(*prepared_, message, e.chunk, at, [&](int64_t piece, std::byte* data, size_t bytes) {
    recvs_.push_back({message.peer, TagOf(piece), {data, bytes}, prepared_->recv_stores[index]});
  });
}

Status PlanWalker::CheckArrived(bool check_payload) const {
  const Plan& plan = prepared_->plan;
  const Stage begin = Before(event().stage);
  const Stage stage = Before(event().stage + 1);
  for (uint32_t m = begin.recvs_end; m < stage.recvs_end; ++m) {
    if (!SpecOf(plan.recvs[m].data).compressed()) continue;
    ZPP_RETURN_IF_ERROR(CheckMessage(plan.recvs[m], check_payload));
  }
  return {};
}

Status PlanWalker::CheckMessage(const Message& message, bool check_payload) const {
  const QuantSpec& spec = SpecOf(message.data);
  for (uint32_t i = 0; i < message.data.count; ++i) {
    const Piece piece = map_.At(message.data, i, event().chunk);
    if (piece.elems == 0) continue;
    const auto header = ReadWireHeader({piece.data, static_cast<size_t>(piece.bytes)});
    if (!header.ok())
      return Corrupt(NameOf(message.peer), "is damaged: " + header.status().message());
    if (header->spec != spec || header->elems != piece.elems) {
      return Corrupt(NameOf(message.peer), "holds " + std::to_string(header->elems) +
                                               " elements as " + ToString(header->spec) +
                                               " where " + std::to_string(piece.elems) + " as " +
                                               ToString(spec) + " were expected");
    }
    if (!check_payload) continue;
    const Status payload = CheckPayload(spec, piece.elems, PayloadOf(spec, piece));
    if (!payload.ok()) return Corrupt(NameOf(message.peer), "is damaged: " + payload.message());
  }
  return {};
}

}  // namespace zpp
