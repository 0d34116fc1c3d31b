#include "tests/collectives/feedback_cases.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "tests/collectives/split_cases.h"
#include "tests/collectives/typed_values.h"
#include "tests/harness/ranks.h"

namespace zpp::test {

std::string FeedbackCase::ToString() const {
  return std::string(CollectiveName(kind)) + (op == ReduceOp::kAvg ? " avg " : " sum ") +
         (hops == FeedbackHops::kAll ? "all hops " : "last hop ") + std::to_string(elems) +
         (policy.flat ? " flat " : " ") + zpp::ToString(policy.intra) + " " +
         zpp::ToString(policy.inter) + (shards.empty() ? "" : " shards");
}

CallOptions FeedbackCase::Call() const {
  CallOptions call;
  call.op = op;
  call.policy = policy;
  call.shard_elems = shards;
  return call;
}

std::vector<float> FeedbackInput(int rank, int step, int64_t elems) {
  uint64_t state = 88172645463325252u + static_cast<uint64_t>(rank * 131 + step) * 1000003u;
  std::vector<float> x(static_cast<size_t>(elems));
  for (float& v : x) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const double unit = static_cast<double>(state >> 11) * 0x1p-53;
    v = static_cast<float>((unit - 0.5) * std::exp2(static_cast<double>(state % 5)));
  }
  return x;
}

std::vector<int64_t> BordersOf(const FeedbackCase& c, int world) {
  std::vector<int64_t> borders = {0};
  for (int r = 0; r < world; ++r) {
    const int64_t blocks = (c.elems + kFeedbackTile_elems - 1) / kFeedbackTile_elems;
    int64_t end = c.elems * (r + 1) / world;
    if (c.kind == CollectiveKind::kAllReduce) {
      end = std::min(c.elems, blocks * (r + 1) / world * kFeedbackTile_elems);
    }
    if (!c.shards.empty()) end = borders.back() + c.shards[static_cast<size_t>(r)];
    borders.push_back(end);
  }
  return borders;
}

Result<FeedbackRun> RunFeedback(Communicator& comm, const FeedbackCase& c) {
  const auto n = static_cast<size_t>(c.elems);
  CallOptions call = c.Call();
  ZPP_ASSIGN_OR_RETURN(ReduceFeedback feedback,
                       comm.MakeFeedback(DType::kF32, c.elems, call, c.hops, c.type, c.kind));
  FeedbackRun run;
  call.feedback = &feedback;
  call.stats = &run.stats;
  const auto borders = BordersOf(c, comm.world());
  const auto rank = static_cast<size_t>(comm.rank());
  for (int step = 0; step < c.steps; ++step) {
    const std::vector<float> in = FeedbackInput(comm.rank(), step, c.elems);
    std::vector<float> out(n, NAN);
    if (c.kind == CollectiveKind::kAllReduce) {
      ZPP_RETURN_IF_ERROR(comm.AllReduce(In(in), Out(out), call));
    } else {
      std::vector<float> shard(static_cast<size_t>(borders[rank + 1] - borders[rank]), NAN);
      ZPP_RETURN_IF_ERROR(comm.ReduceScatter(In(in), Out(shard), call));
      CallOptions plain;
      plain.policy = CollectivePolicy::Lossless();
      plain.shard_elems = c.shards;
      ZPP_RETURN_IF_ERROR(comm.AllGather(In(shard), Out(out), plain));
    }
    run.received.push_back(std::move(out));
  }
  run.owed.assign(n, 0);
  for (const ReduceFeedback::Piece& piece : feedback.pieces()) {
    std::vector<float> residual(static_cast<size_t>(piece.elems));
    ZPP_RETURN_IF_ERROR(piece.residual.Read(residual));
    for (size_t i = 0; i < residual.size(); ++i) {
      run.owed[static_cast<size_t>(piece.first_elem) + i] +=
          static_cast<double>(residual[i]) * (piece.averaged ? comm.world() : 1);
    }
  }
  return run;
}

std::string DigestOf(const FeedbackRun& run) {
  std::string digest;
  for (const auto& x : run.received) {
    digest += Digest(reinterpret_cast<const std::byte*>(x.data()),
                     static_cast<int64_t>(x.size() * sizeof(float))) +
              " ";
  }
  return digest;
}

namespace {

class Naive {
 public:
  Naive(const Topology& topology, const FeedbackCase& c)
      : c_(c), topology_(c.policy.flat ? topology.Flattened() : topology) {
    borders_ = BordersOf(c, topology.world());
    for (int t = 0; t < topology_.tiers(); ++t)
      last_ = topology_.MaxChildren(t + 1) > 1 ? t : last_;
  }

  std::vector<float> Step(int step) {
    step_ = step;
    std::vector<float> sum = SumOf(topology_.tiers(), 0);
    if (c_.kind == CollectiveKind::kAllReduce) Encode(SpecOf(last_), kGather, 0, true, sum);
    return sum;
  }

 private:
  static constexpr int kGather = 99;

  QuantSpec SpecOf(int tier) const {
    return tier > 0 || c_.policy.flat ? c_.policy.inter : c_.policy.intra;
  }

  std::vector<float> SumOf(int level, int id) {
    const Domain& domain = topology_.Get(level, id);
    if (level == 0) return FeedbackInput(domain.ranks[0], step_, c_.elems);
    if (domain.children.size() == 1) return SumOf(level - 1, domain.children[0]);
    const bool average = c_.op == ReduceOp::kAvg;
    const bool first = domain.ranks.size() == domain.children.size();  // nothing summed before
    const auto world = static_cast<float>(topology_.world());
    std::vector<float> sum;
    for (const int32_t child : domain.children) {
      std::vector<float> x = SumOf(level - 1, child);
      if (average && !first && topology_.Get(level - 1, child).ranks.size() == 1) {
        for (float& v : x) v /= world;
      }
      const bool feeds = c_.hops == FeedbackHops::kAll || level - 1 == last_;
      Encode(SpecOf(level - 1), level - 1, child, feeds, x);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
      if (sum.empty()) sum = std::move(x);
    }
    if (average && first) {
      for (float& v : sum) v /= world;
    }
    return sum;
  }

  // x = what it is after encoding, shard by shard.
  void Encode(const QuantSpec& spec, int hop, int who, bool feeds, std::vector<float>& x) {
    if (!spec.compressed()) return;
    std::vector<float>& residual = residuals_[{hop, who}];
    residual.resize(x.size());
    for (size_t p = 0; p + 1 < borders_.size(); ++p) {
      const auto begin = static_cast<size_t>(borders_[p]);
      const int64_t n = borders_[p + 1] - borders_[p];
      std::vector<float> h(x.begin() + borders_[p], x.begin() + borders_[p + 1]);
      for (size_t i = 0; feeds && i < h.size(); ++i) h[i] += residual[begin + i];
      std::vector<std::byte> payload(static_cast<size_t>(PayloadBytes(spec, n)));
      EXPECT_TRUE(zpp::Encode(spec, In(h), payload).ok());
      EXPECT_TRUE(Decode(spec, payload, {DType::kF32, x.data() + begin, n}).ok());
      for (size_t i = 0; i < h.size(); ++i) residual[begin + i] = h[i] - x[begin + i];
    }
  }

  const FeedbackCase& c_;
  const Topology topology_;
  std::vector<int64_t> borders_;
  int last_ = 0;
  int step_ = 0;
  std::map<std::pair<int, int>, std::vector<float>> residuals_;
};

}  // namespace

std::vector<std::vector<float>> NaiveFeedback(const Topology& topology, const FeedbackCase& c) {
  Naive naive(topology, c);
  std::vector<std::vector<float>> steps;
  for (int step = 0; step < c.steps; ++step) steps.push_back(naive.Step(step));
  return steps;
}

}  // namespace zpp::test
