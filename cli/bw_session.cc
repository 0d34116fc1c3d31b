#include "cli/bw_session.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cli/median.h"
#include "collectives/encoding_choice.h"
#include "collectives/gather_values.h"

namespace zpp::cli {
namespace {

using Clock = std::chrono::steady_clock;

bool SharesInput(CollectiveKind kind) { return kind == CollectiveKind::kAllGather; }
bool SharesOutput(CollectiveKind kind) { return kind == CollectiveKind::kReduceScatter; }

// nccl-tests' factor from algorithm to bus bandwidth.
double BusFactor(CollectiveKind kind, int world) {
  const double n = world;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return (n - 1) / n;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kBarrier:
      return 1;
  }
  return 1;
}

// Of no finite element there is no error; of zeros alone it is absolute.
double RelativeError(double squared_error, double squared_value, int64_t compared) {
  if (compared == 0) return std::numeric_limits<double>::quiet_NaN();
  return std::sqrt(squared_value > 0 ? squared_error / squared_value : squared_error);
}

// What one rank tells the others about one mode: fixed-size, followed by its times.
struct Told {
  WireBytes wire, planned;
  int64_t wrong, compared;
  double sum_squared_error, sum_squared_value;
  uint64_t hash;
};

}  // namespace

Status BwSession::Allocate() {
  const int64_t elems = CountFor(args_.kind, args_.sizes_bytes.back(), args_.dtype, comm_.world());
  const auto bytes = static_cast<size_t>(elems * SizeOf(args_.dtype));
  ZPP_ASSIGN_OR_RETURN(in_,
                       Buffer::Allocate(SharesInput(args_.kind) ? bytes / comm_.world() : bytes));
  ZPP_ASSIGN_OR_RETURN(out_,
                       Buffer::Allocate(SharesOutput(args_.kind) ? bytes / comm_.world() : bytes));
  return {};
}

ConstVec BwSession::Input(int64_t count) const {
  return {args_.dtype, in_.data(), SharesInput(args_.kind) ? count / comm_.world() : count};
}

Vec BwSession::Output(int64_t count) const {
  return {args_.dtype, out_.data(), SharesOutput(args_.kind) ? count / comm_.world() : count};
}

void BwSession::FillInput(int64_t count) {
  const ConstVec in = Input(count);
  const bool gathers = args_.kind == CollectiveKind::kAllGather;
  // A gathered vector is one vector, of which each rank owns a share.
  const int64_t first = gathers ? comm_.rank() * in.elems : 0;
  values_.Fill(gathers ? 0 : comm_.rank(), first, {args_.dtype, in_.data(), in.elems});
}

// NaN everywhere, so that what is not written is found. A broadcast's root has its values in the
// output.
void BwSession::Poison(int64_t count) {
  const Vec out = Output(count);
  const auto bytes = static_cast<size_t>(out.elems * SizeOf(out.dtype));
  if (args_.kind == CollectiveKind::kBroadcast && comm_.rank() == 0) {
    std::memcpy(out.data, in_.data(), bytes);
  } else {
    std::memset(out.data, 0xff, bytes);
  }
}

CallOptions BwSession::CallFor(const Mode& mode) const {
  CallOptions call;
  call.op = args_.op;
  call.policy = mode.policy;
  call.noise.seed = 1;
  return call;
}

Status BwSession::RunOnce(const Mode& mode, int64_t count) {
  const CallOptions call = CallFor(mode);
  switch (args_.kind) {
    case CollectiveKind::kAllGather:
      return comm_.AllGather(Input(count), Output(count), call);
    case CollectiveKind::kReduceScatter:
      return comm_.ReduceScatter(Input(count), Output(count), call);
    case CollectiveKind::kAllReduce:
      return comm_.AllReduce(Input(count), Output(count), call);
    case CollectiveKind::kAllToAll:
      return comm_.AllToAll(Input(count), Output(count), call);
    case CollectiveKind::kBroadcast:
      return comm_.Broadcast(Output(count), 0, call);
    case CollectiveKind::kBarrier:
      return comm_.Barrier(call);
  }
  return {};
}

Status BwSession::TimeOnce(Mode* mode, int64_t count) {
  ZPP_RETURN_IF_ERROR(comm_.Barrier());
  const Traffic before = comm_.traffic();
  const Clock::time_point start = Clock::now();
  ZPP_RETURN_IF_ERROR(RunOnce(*mode, count));
  mode->times_s.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  const Traffic after = comm_.traffic();
  mode->sent_bytes.resize(after.sent_bytes.size());
  for (size_t tier = 0; tier < after.sent_bytes.size(); ++tier) {
    const int64_t earlier = tier < before.sent_bytes.size() ? before.sent_bytes[tier] : 0;
    mode->sent_bytes[tier] += after.sent_bytes[tier] - earlier;
  }
  return {};
}

// Whether another iteration comes before the last one, which is verified. Rank 0's clock decides
// when a run by time is over.
Result<bool> BwSession::GoOn(int done, Deadline end) {
  if (args_.seconds <= 0) return done < args_.iters - 1;
  uint8_t more = end.expired() ? 0 : 1;
  ZPP_RETURN_IF_ERROR(comm_.Broadcast({DType::kByte, &more, 1}, 0));
  return more != 0;
}

// The modes take turns, so that whatever slows the machine down slows all of them.
Status BwSession::IterateAll(std::vector<Mode>* modes, int64_t count) {
  for (int i = 0; i < args_.warmup; ++i) {
    for (Mode& mode : *modes) ZPP_RETURN_IF_ERROR(RunOnce(mode, count));
  }
  const Deadline end = Deadline::In(args_.seconds);
  for (int done = 0;; ++done) {
    ZPP_ASSIGN_OR_RETURN(const bool more, GoOn(done, end));
    if (!more) return {};
    for (Mode& mode : *modes) ZPP_RETURN_IF_ERROR(TimeOnce(&mode, count));
  }
}

// The last timed iteration: like the others, but on poisoned memory, and its result is looked at.
Status BwSession::VerifyOnce(Mode* mode, int64_t count) {
  Poison(count);
  ZPP_RETURN_IF_ERROR(TimeOnce(mode, count));
  const ChoiceArgs choice_args{&mode->policy, &comm_.topology(), args_.kind, args_.dtype, count};
  const EncodingChoice choice = ChooseEncodings(choice_args);
  const Topology flattened = comm_.topology().Flattened();
  const Question question{.topology = choice.flat ? &flattened : &comm_.topology(),
                          .kind = args_.kind,
                          .op = args_.op,
                          .rank = comm_.rank(),
                          .count = count,
                          .hop = choice.hop,
                          .gather = choice.gather};
  const Vec out = Output(count);
  mode->verdict = Judge(question, values_, {out.dtype, out.data, out.elems});
  return {};
}

// The links, where those that join nodes are known: told by a flag, or by the topology.
std::optional<Fabric> BwSession::KnownFabric() const {
  const Topology& topology = comm_.topology();
  Fabric fabric = FabricOf(topology);
  if (topology.tiers() > 1 && args_.link_gbits > 0) {
    for (int tier = 1; tier < topology.tiers(); ++tier) {
      fabric.tier[tier].bytes_per_s = args_.link_gbits * 1e9 / 8;
    }
    return fabric;
  }
  const bool known = topology.world() > 1 && topology.links().back().bytes_per_s > 0;
  return known ? std::optional<Fabric>(fabric) : std::nullopt;
}

Status BwSession::Explain(const Mode& mode, int64_t count, BwRun* run) {
  const CallOptions call = CallFor(mode);
  ZPP_ASSIGN_OR_RETURN(const Plan plan, comm_.Explain(args_.kind, args_.dtype, count, call));
  run->reason = plan.reason;
  const std::optional<Fabric> fabric = KnownFabric();
  if (fabric) {
    ZPP_ASSIGN_OR_RETURN(const double seconds,
                         comm_.PredictSeconds(args_.kind, args_.dtype, count, *fabric, call));
    run->predicted_us = seconds * 1e6;
  }
  if (args_.explain) run->plan_text = ToText(plan, comm_.topology());
  return {};
}

Result<BwRun> BwSession::Summarize(const Mode& mode, int64_t size_bytes, int64_t count) {
  const int64_t iterations = static_cast<int64_t>(mode.times_s.size());
  Told told{};
  for (size_t tier = 0; tier < mode.sent_bytes.size(); ++tier) {
    (tier == 0 ? told.wire.intra : told.wire.inter) += mode.sent_bytes[tier];
  }
  ZPP_ASSIGN_OR_RETURN(const std::vector<int64_t> planned,
                       comm_.PlannedBytes(args_.kind, args_.dtype, count, CallFor(mode)));
  for (size_t tier = 0; tier < planned.size(); ++tier) {
    (tier == 0 ? told.planned.intra : told.planned.inter) += planned[tier];
  }
  told.wrong = mode.verdict.wrong;
  told.sum_squared_error = mode.verdict.sum_squared_error;
  told.sum_squared_value = mode.verdict.sum_squared_value;
  told.compared = mode.verdict.compared;
  told.hash = mode.verdict.hash;
  ZPP_ASSIGN_OR_RETURN(const auto all_told, GatherValues(comm_, std::span<const Told>(&told, 1)));
  ZPP_ASSIGN_OR_RETURN(const auto all_times, GatherValues(comm_, mode.times_s));

  BwRun run;
  const bool same_everywhere = args_.kind == CollectiveKind::kAllGather ||
                               args_.kind == CollectiveKind::kAllReduce ||
                               args_.kind == CollectiveKind::kBroadcast;
  std::vector<double> slowest_s(mode.times_s.size(), 0.0);
  double error = 0, value = 0;
  int64_t compared = 0;
  for (int rank = 0; rank < comm_.world(); ++rank) {
    const Told& one = all_told[static_cast<size_t>(rank)];
    run.wire.intra += one.wire.intra;
    run.wire.inter += one.wire.inter;
    run.planned.intra += one.planned.intra;
    run.planned.inter += one.planned.inter;
    run.nwrong += one.wrong;
    if (same_everywhere && one.hash != told.hash) ++run.nwrong;
    error += one.sum_squared_error;
    value += one.sum_squared_value;
    compared += one.compared;
    for (size_t i = 0; i < slowest_s.size(); ++i) {
      slowest_s[i] =
          std::max(slowest_s[i], all_times[static_cast<size_t>(rank) * slowest_s.size() + i]);
    }
  }
  run.wire.intra /= iterations;
  run.wire.inter /= iterations;
  const double time_s = Median(slowest_s);
  run.time_us = time_s * 1e6;
  run.alg_bw = time_s > 0 ? static_cast<double>(size_bytes) / time_s / 1e9 : 0;
  run.bus_bw = run.alg_bw * BusFactor(args_.kind, comm_.world());
  run.rel_error = RelativeError(error, value, compared);
  ZPP_RETURN_IF_ERROR(Explain(mode, count, &run));
  return run;
}

Result<BwRow> BwSession::Measure(int64_t size_bytes) {
  const int64_t count = CountFor(args_.kind, size_bytes, args_.dtype, comm_.world());
  BwRow row;
  row.size_bytes = count * SizeOf(args_.dtype);
  row.count = count;
  FillInput(count);
  std::vector<Mode> modes(args_.policy.lossless() ? 1 : 2);
  modes.back().policy = args_.policy;
  if (modes.size() == 1) modes[0].policy = args_.policy;
  if (modes.size() == 2) modes[0].policy.flat = args_.policy.flat;
  Poison(count);
  ZPP_RETURN_IF_ERROR(IterateAll(&modes, count));
  for (Mode& mode : modes) ZPP_RETURN_IF_ERROR(VerifyOnce(&mode, count));
  row.iterations = static_cast<int>(modes[0].times_s.size());
  ZPP_ASSIGN_OR_RETURN(row.baseline, Summarize(modes[0], row.size_bytes, count));
  if (modes.size() == 2) {
    ZPP_ASSIGN_OR_RETURN(row.compressed, Summarize(modes[1], row.size_bytes, count));
  }
  return row;
}

Result<std::vector<RankPlace>> BwSession::Places() {
  struct Card {
    int32_t pid;
    char host[60];
  } card{};
  card.pid = getpid();
  gethostname(card.host, sizeof card.host - 1);
  ZPP_ASSIGN_OR_RETURN(const auto all, GatherValues(comm_, std::span<const Card>(&card, 1)));
  std::vector<RankPlace> places;
  for (int rank = 0; rank < comm_.world(); ++rank) {
    const Card& one = all[static_cast<size_t>(rank)];
    places.push_back({one.pid, one.host, comm_.topology().NodeOf(rank)});
  }
  return places;
}

}  // namespace zpp::cli
