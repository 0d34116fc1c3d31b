#include "collective_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "../harness/ranks.h"
#include "collective_reference.h"
#include "collectives/encoding_choice.h"
#include "collectives/exec/chunking.h"
#include "collectives/transport/in_process.h"
#include "common/float_bits.h"

namespace zpp::test {
namespace {

constexpr int64_t kGuard_bytes = 64;
constexpr std::byte kPoison{0xa5};

// Whole numbers, small enough that sums over a few ranks are exact in every type; rank and index
// both show.
double InputAt(int rank, int64_t i) {
  const auto mixed = static_cast<uint64_t>(i) * 2654435761u + static_cast<uint64_t>(rank) * 40503u;
  return static_cast<double>(mixed / 7 % 17) - 8 + rank;
}

void Put(DType dtype, double x, std::byte* at) {
  const auto f = static_cast<float>(x);
  switch (dtype) {
    case DType::kF32:
      std::memcpy(at, &f, 4);
      return;
    case DType::kF16: {
      const uint16_t h = F16FromF32(f);
      std::memcpy(at, &h, 2);
      return;
    }
    case DType::kBF16: {
      const uint16_t h = BF16FromF32(f);
      std::memcpy(at, &h, 2);
      return;
    }
    case DType::kByte:
      *at = static_cast<std::byte>(static_cast<int>(x) & 0xff);
      return;
  }
}

double Take(DType dtype, const std::byte* at) {
  float f = 0;
  uint16_t h = 0;
  switch (dtype) {
    case DType::kF32:
      std::memcpy(&f, at, 4);
      return f;
    case DType::kF16:
      std::memcpy(&h, at, 2);
      return F32FromF16(h);
    case DType::kBF16:
      std::memcpy(&h, at, 2);
      return F32FromBF16(h);
    case DType::kByte:
      return static_cast<double>(static_cast<int8_t>(*at));
  }
  return 0;
}

// A buffer between guards, at an odd distance from alignment of its own element size.
class Guarded {
 public:
  Guarded(DType dtype, int64_t elems) : dtype_(dtype), elems_(elems) {
    memory_.assign(static_cast<size_t>(2 * kGuard_bytes + bytes() + SizeOf(dtype)), kPoison);
  }
  int64_t bytes() const { return elems_ * SizeOf(dtype_); }
  std::byte* data() { return memory_.data() + kGuard_bytes + SizeOf(dtype_); }
  bool GuardsHold() {
    const auto poisoned = [](std::byte b) { return b == kPoison; };
    return std::all_of(memory_.data(), data(), poisoned) &&
           std::all_of(data() + bytes(), memory_.data() + memory_.size(), poisoned);
  }

 private:
  DType dtype_;
  int64_t elems_;
  std::vector<std::byte> memory_;
};

std::string Digest(const std::byte* data, int64_t bytes) {
  uint64_t hash = 1469598103934665603u;
  for (int64_t i = 0; i < bytes; ++i) {
    hash = (hash ^ static_cast<uint64_t>(data[i])) * 1099511628211u;
  }
  return std::to_string(hash);
}

std::vector<int64_t> ShardSizes(const CollectiveCase& c, int world) {
  std::vector<int64_t> sizes(static_cast<size_t>(world), 0);
  if (c.shards == Shards::kEqual) {
    std::fill(sizes.begin(), sizes.end(), (c.count + world - 1) / world);
    return sizes;
  }
  int64_t left = c.count;
  for (int r = 0; r < world; ++r) {
    const bool last = r == world - 1;
    int64_t share = c.count * (r % 3 + 1) / (2 * world + 1);
    if (c.shards == Shards::kMostlyEmpty && !last) share = r == 1 ? c.count / 3 : 0;
    sizes[static_cast<size_t>(r)] = last ? left : std::min(left, share);
    left -= sizes[static_cast<size_t>(r)];
  }
  return sizes;
}

std::vector<int64_t> BordersOf(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> borders = {0};
  for (int64_t size : sizes) borders.push_back(borders.back() + size);
  return borders;
}

// The call's buffers: `in` and `out` may share `whole`.
struct Sizes {
  std::vector<int64_t> shards, borders;
  int64_t in = 0, out = 0, whole = 0, own_offset = 0;
};

Sizes SizesOf(const CollectiveCase& c, int rank, int world) {
  Sizes s;
  s.shards = ShardSizes(c, world);
  s.borders = BordersOf(s.shards);
  s.whole = s.borders.back();
  const int64_t own = s.shards[static_cast<size_t>(rank)];
  switch (c.kind) {
    case CollectiveKind::kAllGather:
      s.in = own, s.out = s.whole, s.own_offset = s.borders[static_cast<size_t>(rank)];
      break;
    case CollectiveKind::kReduceScatter:
      s.in = s.whole, s.out = own, s.own_offset = s.borders[static_cast<size_t>(rank)];
      break;
    case CollectiveKind::kAllReduce:
      if (c.shards == Shards::kEqual) s.whole = c.count;
      s.in = s.out = s.whole;
      break;
    case CollectiveKind::kAllToAll:
      s.in = s.out = s.whole;
      break;
    case CollectiveKind::kBroadcast:
      s.in = s.out = s.whole = c.count;
      break;
    case CollectiveKind::kBarrier:
      s.in = s.out = s.whole = 0;
      break;
  }
  return s;
}

// Where all-reduce cuts its parts when it is left to itself: recomputed here from the documented
// rule, equal shares of whole grid cells.
std::vector<int64_t> EvenBorders(int64_t elems, int world, int64_t grid) {
  std::vector<int64_t> borders;
  const int64_t cells = (elems + grid - 1) / grid;
  for (int r = 0; r <= world; ++r) borders.push_back(std::min(elems, cells * r / world * grid));
  return borders;
}

Expected Want(const Communicator& comm, const CollectiveCase& c, const Sizes& s) {
  const Topology& real = comm.topology();
  const int world = real.world(), rank = comm.rank();
  Expected want{std::vector<double>(static_cast<size_t>(s.out)),
                std::vector<double>(static_cast<size_t>(s.out), 0)};
  const EncodingChoice choice = ChooseEncodings({&c.policy, &real, c.kind, c.dtype, s.whole});
  switch (c.kind) {
    case CollectiveKind::kBarrier:
      return want;
    case CollectiveKind::kBroadcast:
      for (int64_t i = 0; i < s.out; ++i) want.value[static_cast<size_t>(i)] = InputAt(c.root, i);
      return want;
    case CollectiveKind::kAllToAll: {
      const int64_t block = s.whole / world;
      for (int64_t i = 0; i < s.out; ++i) {
        const int source = static_cast<int>(i / block);
        want.value[static_cast<size_t>(i)] = InputAt(source, rank * block + i % block);
      }
      return want;
    }
    case CollectiveKind::kAllGather: {
      for (int r = 0; r < world; ++r) {
        const auto at = static_cast<size_t>(r);
        for (int64_t i = 0; i < s.shards[at]; ++i) {
          want.value[static_cast<size_t>(s.borders[at] + i)] = InputAt(r, i);
        }
      }
      if (choice.gather.compressed()) Encoded(choice.gather, s.borders, &want);
      break;
    }
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllReduce: {
      std::vector<std::vector<double>> inputs(static_cast<size_t>(world));
      for (int r = 0; r < world; ++r) {
        auto& x = inputs[static_cast<size_t>(r)];
        for (int64_t i = 0; i < s.whole; ++i) x.push_back(InputAt(r, i));
      }
      const Topology topology = choice.flat ? real.Flattened() : real;
      std::vector<int64_t> borders = s.borders;
      if (c.kind == CollectiveKind::kAllReduce && c.shards == Shards::kEqual) {
        const QuantSpec user = QuantSpec::None(c.dtype);
        const int64_t grid = choice.compressed ? GridElems(choice.hop, choice.gather, c.dtype)
                                               : GridElems({}, user, c.dtype);
        borders = EvenBorders(s.whole, world, grid);
      }
      Expected all = Reduced(topology, {choice.hop, choice.gather}, c.op, inputs, borders);
      if (!choice.compressed && c.op == ReduceOp::kSum) {
        std::fill(all.error.begin(), all.error.end(),
                  0.0);  // sums of small whole numbers are exact
      }
      if (c.kind == CollectiveKind::kAllReduce) {
        if (choice.gather.compressed()) Encoded(choice.gather, borders, &all);
        want = all;
        break;
      }
      for (int64_t i = 0; i < s.out; ++i) {
        want.value[static_cast<size_t>(i)] = all.value[static_cast<size_t>(s.own_offset + i)];
        want.error[static_cast<size_t>(i)] = all.error[static_cast<size_t>(s.own_offset + i)];
      }
      break;
    }
  }
  return want;
}

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

Result<std::vector<std::string>> RunWorld(const WorldOptions& options, const CommBody& body) {
  const int world = options.topology.world();
  InProcessWorld net = MakeInProcessWorld(world, {.adversary_seed = options.adversary_seed});
  const auto outcomes = RunThreads(world, [&](int rank) -> Result<std::string> {
    const auto at = static_cast<size_t>(rank);
    auto comm = Communicator::Create(std::move(net.transports[at]), std::move(net.controls[at]),
                                     options.topology, options.communicator);
    ZPP_RETURN_IF_ERROR(comm.status());
    auto value = body(**comm);
    if (!value.ok()) {
      (*comm)->Abort(value.status());
      return value;
    }
    ZPP_RETURN_IF_ERROR((*comm)->Shutdown(Deadline::In(30)));
    return value;
  });
  std::vector<std::string> values;
  std::string faults;
  for (size_t r = 0; r < outcomes.size(); ++r) {
    if (!outcomes[r].ok())
      faults += "rank " + std::to_string(r) + ": " + outcomes[r].ToString() + "\n";
    values.push_back(outcomes[r].value);
  }
  if (!faults.empty()) return Internal(faults);
  return values;
}

std::vector<std::pair<std::string, Topology>> Layouts() {
  const std::vector<int> two = {0, 0, 1, 1}, scattered = {0, 1, 0, 1, 1};
  const std::vector<int> even = {2, 2}, uneven = {3, 1}, lone = {1, 1}, three = {2, 1, 2};
  const std::vector<int> cube = {2, 2, 2};
  const std::vector<std::vector<int>> labels = {scattered};
  // Nodes of 2, 1 and 2 ranks in racks of 2 nodes and 1.
  const std::vector<std::vector<int>> ragged = {{0, 0, 1, 2, 2}, {0, 0, 0, 1, 1}};
  return {{"world 1", Topology::Flat(1)},
          {"flat 2", Topology::Flat(2)},
          {"flat 3", Topology::Flat(3)},
          {"flat 4", Topology::Flat(4)},
          {"2+2", *Topology::Nodes(even)},
          {"3+1", *Topology::Nodes(uneven)},
          {"1+1", *Topology::Nodes(lone)},
          {"2+1+2", *Topology::Nodes(three)},
          {"scattered", *Topology::FromLabels(5, labels)},
          {"2x2x2", *Topology::Regular(cube)},
          {"ragged racks", *Topology::FromLabels(5, ragged)}};
}

}  // namespace zpp::test
