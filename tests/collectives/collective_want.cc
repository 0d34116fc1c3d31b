#include "tests/collectives/collective_want.h"

#include <algorithm>

#include "collectives/encoding_choice.h"
#include "collectives/exec/chunking.h"
#include "tests/collectives/typed_values.h"

namespace zpp::test {
namespace {

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

// Where all-reduce cuts its parts when it is left to itself: recomputed here from the documented
// rule, equal shares of whole grid cells.
std::vector<int64_t> EvenBorders(int64_t elems, int world, int64_t grid) {
  std::vector<int64_t> borders;
  const int64_t cells = (elems + grid - 1) / grid;
  for (int r = 0; r <= world; ++r) borders.push_back(std::min(elems, cells * r / world * grid));
  return borders;
}

Expected SumOfAll(const Topology& real, const CollectiveCase& c, const EncodingChoice& choice,
                  const std::vector<int64_t>& borders) {
  const int64_t whole = borders.back();
  std::vector<std::vector<double>> inputs(static_cast<size_t>(real.world()));
  for (int r = 0; r < real.world(); ++r) {
    for (int64_t i = 0; i < whole; ++i) inputs[static_cast<size_t>(r)].push_back(InputAt(r, i));
  }
  const Topology topology = choice.flat ? real.Flattened() : real;
  Expected all = Reduced(topology, {choice.hop, choice.gather}, c.op, inputs, borders);
  // Sums of small whole numbers are exact.
  const bool exact = !choice.compressed && c.op == ReduceOp::kSum;
  if (exact) std::fill(all.error.begin(), all.error.end(), 0.0);
  return all;
}

Expected WantSum(const Topology& real, int rank, const CollectiveCase& c, const Sizes& s,
                 const EncodingChoice& choice) {
  if (c.kind == CollectiveKind::kAllReduce) {
    std::vector<int64_t> borders = s.borders;
    if (c.shards == Shards::kEqual) {
      const QuantSpec user = QuantSpec::None(c.dtype);
      const int64_t grid = choice.compressed ? GridElems(choice.hop, choice.gather, c.dtype)
                                             : GridElems({}, user, c.dtype);
      borders = EvenBorders(s.whole, real.world(), grid);
    }
    Expected all = SumOfAll(real, c, choice, borders);
    if (choice.gather.compressed()) Encoded(choice.gather, borders, &all);
    return all;
  }
  const Expected all = SumOfAll(real, c, choice, s.borders);
  const auto own = [&](const std::vector<double>& x) {
    const auto begin = x.begin() + s.borders[static_cast<size_t>(rank)];
    return std::vector<double>(begin, begin + s.out);
  };
  return {own(all.value), own(all.error)};
}

}  // namespace

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
    case CollectiveKind::kAllReduce:
      return WantSum(real, rank, c, s, choice);
  }
  return want;
}

}  // namespace zpp::test
