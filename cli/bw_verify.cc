#include "cli/bw_verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace zpp::cli {
namespace {

constexpr int64_t kWindow_elems = 2048;  // the largest block; every block size divides it
constexpr double kRoundF32 = 0x1p-24;

// What exact arithmetic gives, and how far from it the codec may end.
struct Estimate {
  std::vector<double> value;
  std::vector<double> bound;
};

// Relative and absolute error of rounding to a type.
double RelativeRounding(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kF32:
    case DType::kByte:
      return kRoundF32;
  }
  return kRoundF32;
}
double AbsoluteRounding(DType dtype) { return dtype == DType::kF16 ? 0x1p-25 : 0x1p-126; }

void AddRounding(DType dtype, Estimate* x) {
  for (size_t i = 0; i < x->value.size(); ++i) {
    x->bound[i] +=
        RelativeRounding(dtype) * (std::fabs(x->value[i]) + x->bound[i]) + AbsoluteRounding(dtype);
  }
}

// Encode and decode of one block.
void QuantizeBlock(const QuantSpec& spec, std::span<double> value, std::span<double> bound) {
  double largest = 0;
  bool finite = true;
  for (size_t i = 0; i < value.size(); ++i) {
    finite = finite && std::isfinite(value[i]);
    largest = std::max(largest, std::fabs(value[i]) + bound[i]);
  }
  if (!finite) {
    std::fill(value.begin(), value.end(), std::numeric_limits<double>::quiet_NaN());
    return;
  }
  const float reach =
      static_cast<float>(std::min<double>(largest, std::numeric_limits<float>::max()));
  // The bound follows the scale, which is rounded to bf16: between two magnitudes it may be higher
  // than at the upper one.
  const bool known = std::all_of(bound.begin(), bound.end(), [](double b) { return b == 0; });
  const double step =
      static_cast<double>(ErrorBound(spec, reach)) * (known ? 1 + 1e-6 : 1 + 0x1p-5);
  for (double& b : bound) b += step;
}

void Quantize(const QuantSpec& spec, Estimate* x) {
  if (!spec.compressed()) return AddRounding(spec.plain, x);
  const size_t block = static_cast<size_t>(spec.block_elems);
  for (size_t begin = 0; begin < x->value.size(); begin += block) {
    const size_t elems = std::min(block, x->value.size() - begin);
    QuantizeBlock(spec, std::span(x->value).subspan(begin, elems),
                  std::span(x->bound).subspan(begin, elems));
  }
}

Estimate Exact(const Values& values, int rank, int64_t first, int64_t elems, double divisor) {
  std::vector<float> raw(static_cast<size_t>(elems));
  values.Read(rank, first, raw);
  Estimate x{std::vector<double>(raw.begin(), raw.end()), std::vector<double>(raw.size(), 0.0)};
  for (double& v : x.value) v /= divisor;
  return x;
}

// fp32 sum of the children in order.
Estimate Sum(const std::vector<const Estimate*>& terms) {
  Estimate sum = *terms[0];
  std::vector<double> magnitude(sum.value.size());
  for (size_t i = 0; i < magnitude.size(); ++i)
    magnitude[i] = std::fabs(sum.value[i]) + sum.bound[i];
  for (size_t k = 1; k < terms.size(); ++k) {
    for (size_t i = 0; i < magnitude.size(); ++i) {
      sum.value[i] += terms[k]->value[i];
      sum.bound[i] += terms[k]->bound[i];
      magnitude[i] += std::fabs(terms[k]->value[i]) + terms[k]->bound[i];
    }
  }
  const double roundings =
      static_cast<double>(terms.size()) + 1;  // one more for the division of avg
  for (size_t i = 0; i < magnitude.size(); ++i)
    sum.bound[i] += roundings * kRoundF32 * magnitude[i];
  return sum;
}

// The reduction of elements [first, first + elems) as the hops do it: inside every domain,
// innermost tier first.
Estimate Reduced(const Question& q, const Values& values, int64_t first, int64_t elems) {
  const Topology& topology = *q.topology;
  const double divisor = q.op == ReduceOp::kAvg ? topology.world() : 1;
  std::vector<Estimate> level;
  for (int rank = 0; rank < topology.world(); ++rank) {
    level.push_back(Exact(values, rank, first, elems, divisor));
  }
  for (int tier = 0; tier < topology.tiers(); ++tier) {
    std::vector<Estimate> above;
    for (int id = 0; id < topology.NumDomains(tier + 1); ++id) {
      const Domain& domain = topology.Get(tier + 1, id);
      std::vector<const Estimate*> terms;
      for (const int32_t child : domain.children) {
        if (domain.children.size() > 1) Quantize(q.hop[tier], &level[child]);
        terms.push_back(&level[child]);
      }
      above.push_back(terms.size() > 1 ? Sum(terms) : *terms[0]);
    }
    level = std::move(above);
  }
  return std::move(level[0]);
}

bool Within(double got, double want, double bound) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want || std::isnan(got);
  return std::fabs(got - want) <= bound;
}

void Compare(const Estimate& want, ConstVec out, int64_t first, Verdict* verdict) {
  for (size_t i = 0; i < want.value.size(); ++i) {
    const double got = ElementAt(out, first + static_cast<int64_t>(i));
    if (!Within(got, want.value[i], want.bound[i])) ++verdict->wrong;
    if (!std::isfinite(got) || !std::isfinite(want.value[i])) continue;
    ++verdict->compared;
    verdict->sum_squared_error += (got - want.value[i]) * (got - want.value[i]);
    verdict->sum_squared_value += want.value[i] * want.value[i];
  }
}

// A run of the output that comes from consecutive elements of one part.
struct Piece {
  int source_rank;  // whose contribution, for gathers and exchanges
  int64_t first;    // of the part, in the source's vector
  int64_t elems;
  int64_t out_first;  // where the part begins in `out`
};

// The grid that an all-reduce cuts its parts on when it compresses; without blocks any cut will do.
int64_t GridOf(const Question& q) {
  int64_t grid = 64 / SizeOf(q.gather.compressed() ? DType::kF32 : q.gather.plain);
  for (const QuantSpec& spec : q.hop) grid = std::max<int64_t>(grid, spec.block_elems);
  return std::max<int64_t>(grid, q.gather.block_elems);
}

std::vector<Piece> PiecesOf(const Question& q) {
  const int world = q.topology->world();
  const int64_t share = q.count / world;
  std::vector<Piece> pieces;
  switch (q.kind) {
    case CollectiveKind::kAllGather:
      for (int r = 0; r < world; ++r) pieces.push_back({0, r * share, share, r * share});
      break;
    case CollectiveKind::kReduceScatter:
      pieces.push_back({0, q.rank * share, share, 0});
      break;
    case CollectiveKind::kAllReduce: {
      const Partition parts = Partition::Even(q.count, world, GridOf(q));
      const int64_t offset = parts.Offset(static_cast<PartId>(q.rank));
      pieces.push_back({0, offset, parts.Elems(static_cast<PartId>(q.rank)), offset});
      break;
    }
    case CollectiveKind::kAllToAll:
      for (int r = 0; r < world; ++r) pieces.push_back({r, q.rank * share, share, r * share});
      break;
    case CollectiveKind::kBroadcast:
      pieces.push_back({0, 0, q.count, 0});
      break;
    case CollectiveKind::kBarrier:
      break;
  }
  return pieces;
}

Estimate Expected(const Question& q, const Values& values, const Piece& piece, int64_t first,
                  int64_t elems) {
  const bool reduces =
      q.kind == CollectiveKind::kReduceScatter || q.kind == CollectiveKind::kAllReduce;
  Estimate want = reduces ? Reduced(q, values, first, elems)
                          : Exact(values, piece.source_rank, first, elems, 1);
  const bool gathers = q.kind == CollectiveKind::kAllReduce || q.kind == CollectiveKind::kAllGather;
  const bool recodes = gathers && q.gather.compressed() && q.topology->world() > 1;
  if (recodes) Quantize(q.gather, &want);
  if (reduces || recodes) AddRounding(values.dtype(), &want);
  return want;
}

}  // namespace

uint64_t HashOf(ConstVec vec) {
  const auto* bytes = static_cast<const std::byte*>(vec.data);
  const int64_t total = vec.elems * SizeOf(vec.dtype);
  uint64_t hash = 0x243f6a8885a308d3u;
  for (int64_t at = 0; at < total; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, static_cast<size_t>(std::min<int64_t>(8, total - at)));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

Verdict Judge(const Question& question, const Values& values, ConstVec out) {
  Verdict verdict;
  for (const Piece& piece : PiecesOf(question)) {
    for (int64_t done = 0; done < piece.elems; done += kWindow_elems) {
      const int64_t elems = std::min(kWindow_elems, piece.elems - done);
      const Estimate want = Expected(question, values, piece, piece.first + done, elems);
      Compare(want, out, piece.out_first + done, &verdict);
    }
  }
  verdict.hash = HashOf(out);
  return verdict;
}

}  // namespace zpp::cli
