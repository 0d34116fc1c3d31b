#include "tests/collectives/collective_cases.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "tests/collectives/collective_want.h"
#include "tests/collectives/typed_values.h"
#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

Work Launch(Communicator& comm, const CollectiveCase& c, const ConstVec& in, const Vec& out,
            const CallOptions& call) {
  switch (c.kind) {
    case CollectiveKind::kAllGather:
      return comm.StartAllGather(in, out, call);
    case CollectiveKind::kReduceScatter:
      return comm.StartReduceScatter(in, out, call);
    case CollectiveKind::kAllReduce:
      return comm.StartAllReduce(in, out, call);
    case CollectiveKind::kAllToAll:
      return comm.StartAllToAll(in, out, call);
    case CollectiveKind::kBroadcast:
      return comm.StartBroadcast(out, c.root, call);
    case CollectiveKind::kBarrier:
      return comm.StartBarrier(call);
  }
  return Work::Ended({});
}

Status Block(Communicator& comm, const CollectiveCase& c, const ConstVec& in, const Vec& out,
             const CallOptions& call) {
  switch (c.kind) {
    case CollectiveKind::kAllGather:
      return comm.AllGather(in, out, call);
    case CollectiveKind::kReduceScatter:
      return comm.ReduceScatter(in, out, call);
    case CollectiveKind::kAllReduce:
      return comm.AllReduce(in, out, call);
    case CollectiveKind::kAllToAll:
      return comm.AllToAll(in, out, call);
    case CollectiveKind::kBroadcast:
      return comm.Broadcast(out, c.root, call);
    case CollectiveKind::kBarrier:
      return comm.Barrier(call);
  }
  return {};
}

// Polls only. The thread yields in between, so that the others come to run on few cores.
Status PollUntilEnded(Work work) {
  const Deadline limit = Deadline::In(60);
  while (!work.Poll()) {
    if (limit.expired()) return Status(StatusCode::kDeadlineExceeded, "Poll never came to an end");
    std::this_thread::yield();
  }
  return work.status();
}

Status Compare(const CollectiveCase& c, const Expected& want, const std::byte* out) {
  for (size_t i = 0; i < want.value.size(); ++i) {
    const double got = Take(c.dtype, out + static_cast<int64_t>(i) * SizeOf(c.dtype));
    double allowed = want.error[i];
    if (allowed > 0) allowed += (std::abs(want.value[i]) + allowed) * UnitOf(c.dtype);
    if (c.dtype == DType::kByte && static_cast<int8_t>(want.value[i]) == got) continue;
    if (!(std::abs(got - want.value[i]) <= allowed)) {
      return Internal("element " + std::to_string(i) + " is " + std::to_string(got) + ", not " +
                      std::to_string(want.value[i]) + " +- " + std::to_string(allowed));
    }
  }
  return {};
}

}  // namespace

std::string CollectiveCase::ToString() const {
  return std::string(CollectiveName(kind)) + " " + std::string(DTypeName(dtype)) +
         (op == ReduceOp::kAvg ? " avg" : " sum") + (in_place ? " in-place" : "") + " shards " +
         std::to_string(static_cast<int>(shards)) + " count " + std::to_string(count) + " intra " +
         zpp::ToString(policy.intra) + " inter " + zpp::ToString(policy.inter) +
         (policy.flat ? " flat" : "") + (async ? " async" : "");
}

Result<std::string> RunCase(Communicator& comm, const CollectiveCase& c) {
  const int rank = comm.rank(), world = comm.world();
  const Sizes s = SizesOf(c, rank, world);
  const bool one_buffer = c.in_place || c.kind == CollectiveKind::kBroadcast;
  Guarded a(c.dtype, one_buffer ? std::max(s.in, s.out) : s.in);
  Guarded b(c.dtype, one_buffer ? 0 : s.out);
  const int64_t size = SizeOf(c.dtype);
  std::byte* in = a.data();
  std::byte* out = one_buffer ? a.data() : b.data();
  if (one_buffer && c.kind == CollectiveKind::kAllGather) in += s.own_offset * size;
  if (one_buffer && c.kind == CollectiveKind::kReduceScatter) out += s.own_offset * size;
  const bool fills = c.kind != CollectiveKind::kBroadcast || rank == c.root;
  for (int64_t i = 0; fills && i < s.in; ++i) Put(c.dtype, InputAt(rank, i), in + i * size);
  const std::string before = Digest(in, s.in * size);

  CallOptions call;
  call.op = c.op;
  call.policy = c.policy;
  if (c.shards != Shards::kEqual) call.shard_elems = s.shards;
  const auto planned = comm.PlannedBytes(c.kind, c.dtype, s.whole, call, c.root);
  ZPP_REQUIRE_MSG(planned.ok(), c.ToString() + ": " + planned.status().ToString());
  const Traffic sent = comm.traffic();
  const ConstVec from{c.dtype, in, s.in};
  const Vec to{c.dtype, out, s.out};
  const Status status =
      c.async ? PollUntilEnded(Launch(comm, c, from, to, call)) : Block(comm, c, from, to, call);
  ZPP_REQUIRE_MSG(status.ok(), c.ToString() + ": " + status.ToString());
  const Status right = Compare(c, Want(comm, c, s), out);
  ZPP_REQUIRE_MSG(right.ok(),
                  c.ToString() + " rank " + std::to_string(rank) + ": " + right.message());
  ZPP_REQUIRE_MSG(a.GuardsHold() && b.GuardsHold(), c.ToString() + ": wrote beyond the buffers");
  ZPP_REQUIRE_MSG(one_buffer || Digest(in, s.in * size) == before,
                  c.ToString() + ": the input was modified");
  const Traffic now = comm.traffic();
  for (size_t t = 0; t < planned->size(); ++t) {
    ZPP_REQUIRE_MSG(now.sent_bytes[t] - sent.sent_bytes[t] == (*planned)[t],
                    c.ToString() + ": tier " + std::to_string(t) + " carried " +
                        std::to_string(now.sent_bytes[t] - sent.sent_bytes[t]) +
                        " bytes, planned " + std::to_string((*planned)[t]));
  }
  return Digest(out, s.out * size);
}

}  // namespace zpp::test
