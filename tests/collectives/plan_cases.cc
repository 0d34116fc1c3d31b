#include "tests/collectives/plan_cases.h"

#include <algorithm>
#include <cmath>

namespace zpp::test {
namespace {

std::vector<int> Label(int world, int (*of)(int rank, int world)) {
  std::vector<int> label(static_cast<size_t>(world));
  for (int r = 0; r < world; ++r) label[static_cast<size_t>(r)] = of(r, world);
  return label;
}

// Nodes of 1, 2, 3, ... ranks.
int Triangle(int rank, int) {
  int node = 0;
  for (int end = 1; rank >= end; end += ++node + 1) {
  }
  return node;
}

int HashNode(int rank, int world) { return rank * 7 % std::max(1, (world + 2) / 3); }

Topology FromLabels(int world, std::vector<std::vector<int>> labels) {
  return std::move(Topology::FromLabels(world, labels)).value();
}

std::vector<int64_t> UnequalShards(int64_t elems, int world) {
  std::vector<int64_t> sizes;
  for (int r = 0; r < world; ++r) {
    sizes.push_back(r % 3 == 1 ? 0 : elems * (r + 1) / (int64_t{world} * (world + 1) / 2));
  }
  return sizes;
}

}  // namespace

Layout MakeLayout(int which, int world) {
  using Labels = std::vector<std::vector<int>>;
  switch (which) {
    case 0:
      return {"flat", Topology::Flat(world)};
    case 1:
      return {"two halves", FromLabels(world, Labels{Label(world, [](int r, int w) {
                                         return r * 2 / std::max(2, w);
                                       })})};
    case 2:
      return {"nodes of 1, 2, 3, ...", FromLabels(world, Labels{Label(world, Triangle)})};
    case 3:
      return {"scattered over 4 nodes",
              FromLabels(world, Labels{Label(world, [](int r, int) { return r % 4; })})};
    case 4:
      return {"nodes of 8",
              FromLabels(world, Labels{Label(world, [](int r, int) { return r / 8; })})};
    case 5:
      return {"nodes of one",
              FromLabels(world, Labels{Label(world, [](int r, int) { return r; })})};
    case 6:
      return {
          "one rank apart",
          FromLabels(world, Labels{Label(world, [](int r, int w) { return r == w - 1 ? 1 : 0; })})};
    case 7:
      return {"3 tiers: 4 x 3 x rest",
              FromLabels(world, Labels{Label(world, [](int r, int) { return r / 4; }),
                                       Label(world, [](int r, int) { return r / 12; })})};
    case 8:
      return {"3 tiers, scattered and uneven",
              FromLabels(world, Labels{Label(world, HashNode), Label(world, [](int r, int w) {
                                         return HashNode(r, w) % 3;
                                       })})};
    default:
      return {
          "4 tiers, uneven",
          FromLabels(world, Labels{Label(world, Triangle),
                                   Label(world, [](int r, int w) { return Triangle(r, w) / 2; }),
                                   Label(world, [](int r, int w) { return Triangle(r, w) / 4; })})};
  }
}

bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllReduce;
}

std::string FlavorName(Flavor flavor) {
  switch (flavor) {
    case Flavor::kPlain:
      return "plain";
    case Flavor::kCompressed:
      return "compressed";
    case Flavor::kMean16:
      return "mean16";
    case Flavor::kWideMean16:
      return "wide_mean16";
    case Flavor::kUnequal:
      return "unequal";
    case Flavor::kFlat:
      return "flat";
    case Flavor::kOneShot:
      return "one_shot";
    case Flavor::kOneShotPlain:
      return "one_shot_plain";
    case Flavor::kNarrow:
      return "narrow";
    case Flavor::kOneShotNarrow:
      return "one_shot_narrow";
  }
  return "";
}

bool Applies(Flavor flavor, CollectiveKind kind) {
  switch (flavor) {
    case Flavor::kPlain:
      return true;
    case Flavor::kCompressed:
      return kind != CollectiveKind::kBarrier;
    case Flavor::kMean16:
    case Flavor::kWideMean16:
      return Reduces(kind);
    case Flavor::kUnequal:
    case Flavor::kFlat:
    case Flavor::kNarrow:
      return Reduces(kind) || kind == CollectiveKind::kAllGather;
    case Flavor::kOneShot:
    case Flavor::kOneShotPlain:
    case Flavor::kOneShotNarrow:
      return kind == CollectiveKind::kAllReduce;
  }
  return false;
}

namespace {

void SetEncodings(Flavor flavor, int tiers, PlanRequest* q) {
  const size_t n = static_cast<size_t>(tiers);
  const bool compressed = flavor == Flavor::kCompressed || flavor == Flavor::kUnequal ||
                          flavor == Flavor::kFlat || flavor == Flavor::kOneShot;
  const bool half = flavor == Flavor::kMean16 || flavor == Flavor::kOneShotPlain;
  const bool brain = flavor == Flavor::kWideMean16;
  q->user = QuantSpec::None(half ? DType::kF16 : brain ? DType::kBF16 : DType::kF32);
  q->gather = compressed ? QuantSpec::Int8(128) : q->user;
  q->hop.assign(n, brain ? QuantSpec::None() : q->user);
  if (flavor == Flavor::kNarrow || flavor == Flavor::kOneShotNarrow) {
    q->gather = QuantSpec::None(DType::kBF16);
    q->hop.assign(n, q->gather);
  }
  if (!compressed) return;
  q->hop.assign(n, QuantSpec::Int4(Code::kSqrt));
  if (n > 1) q->hop[0] = QuantSpec::Int8();
}

}  // namespace

Case MakeCase(const Topology& topology, CollectiveKind kind, Flavor flavor, int64_t elems) {
  const int world = topology.world();
  Case c;
  PlanRequest& q = c.request;
  q.topology = &topology;
  q.kind = kind;
  SetEncodings(flavor, topology.tiers(), &q);
  const bool mean = flavor == Flavor::kMean16 || flavor == Flavor::kWideMean16 ||
                    flavor == Flavor::kUnequal || flavor == Flavor::kOneShot;
  q.op = mean ? ReduceOp::kAvg : ReduceOp::kSum;
  q.root = world - 1;
  q.flat = flavor == Flavor::kFlat;
  q.one_shot = flavor == Flavor::kOneShot || flavor == Flavor::kOneShotPlain ||
               flavor == Flavor::kOneShotNarrow;
  const int64_t grid = flavor == Flavor::kPlain ? 1 : 256;
  if (kind == CollectiveKind::kAllToAll) {
    c.parts = Partition::Pairwise(elems / world / world, world, grid);
  } else if (kind == CollectiveKind::kBroadcast) {
    c.parts = Partition::Even(elems, 1, grid);
  } else if (flavor == Flavor::kUnequal || flavor == Flavor::kMean16) {
    c.parts = Partition::Sized(UnequalShards(elems, world), grid);
  } else {
    c.parts = Partition::Even(elems, world, grid);
  }
  return c;
}

}  // namespace zpp::test
