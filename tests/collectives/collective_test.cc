// Every collective over every layout, type, place and size, against the naive reference.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/collectives/collective_cases.h"

namespace zpp::test {
namespace {

constexpr int64_t kCounts[] = {0, 1, 2, 7, 127, 128, 129, 4097};

CollectivePolicy Compressed(QuantSpec intra, QuantSpec inter) {
  return {.intra = intra, .inter = inter, .min_compress_bytes = 0};
}

bool SameOnAllRanks(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kBroadcast;
}

// Runs the cases one after another on one set of communicators.
void RunCases(const WorldOptions& world, const std::vector<CollectiveCase>& cases) {
  std::vector<std::vector<std::string>> digests(static_cast<size_t>(world.topology.world()));
  const auto result = RunWorld(world, [&](Communicator& comm) -> Result<std::string> {
    for (const CollectiveCase& c : cases) {
      ZPP_ASSIGN_OR_RETURN(auto digest, RunCase(comm, c));
      digests[static_cast<size_t>(comm.rank())].push_back(std::move(digest));
    }
    return std::string("done");
  });
  ASSERT_TRUE(result.ok()) << result.status().message();
  for (size_t i = 0; i < cases.size(); ++i) {
    if (!SameOnAllRanks(cases[i].kind)) continue;
    for (const auto& of_rank : digests) {
      EXPECT_EQ(of_rank[i], digests[0][i]) << cases[i].ToString();
    }
  }
}

class Collectives : public testing::TestWithParam<int> {
 protected:
  const Topology& topology() const { return layouts_[static_cast<size_t>(GetParam())].second; }
  int pairs() const { return topology().world() > 4 ? 2 : 4; }

 private:
  std::vector<std::pair<std::string, Topology>> layouts_ = Layouts();
};

std::string LayoutName(const testing::TestParamInfo<int>& info) {
  std::string name = Layouts()[static_cast<size_t>(info.param)].first;
  for (char& c : name) {
    if (!isalnum(c)) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, Collectives,
                         testing::Range(0, static_cast<int>(Layouts().size())), LayoutName);

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr Shards kShards[] = {Shards::kEqual, Shards::kUneven, Shards::kMostlyEmpty};

// Every size, division and place of one type and encoding.
void AddGathers(DType dtype, const CollectivePolicy& policy, std::vector<CollectiveCase>& cases) {
  for (int64_t count : kCounts) {
    for (Shards shards : kShards) {
      for (bool in_place : {false, true}) {
        cases.push_back({.kind = CollectiveKind::kAllGather,
                         .dtype = dtype,
                         .in_place = in_place,
                         .shards = shards,
                         .count = count,
                         .policy = policy});
      }
    }
  }
}

TEST_P(Collectives, PlainGatherOfEveryTypeIsExact) {
  std::vector<CollectiveCase> cases;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kByte}) {
    AddGathers(dtype, {}, cases);
  }
  RunCases({.topology = topology()}, cases);
}

// Every kind, type, size and division; place and op in all four pairs, or with `pairs` in two.
std::vector<CollectiveCase> Reductions(const CollectivePolicy& policy, int pairs = 4) {
  std::vector<CollectiveCase> cases;
  for (auto kind : {CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce}) {
    for (DType dtype : kFloats) {
      for (int64_t count : kCounts) {
        for (Shards shards : kShards) {
          for (bool in_place : {false, true}) {
            for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
              if (pairs == 2 && in_place == (op == ReduceOp::kAvg)) continue;
              cases.push_back({kind, dtype, op, in_place, shards, count, policy});
            }
          }
        }
      }
    }
  }
  return cases;
}

TEST_P(Collectives, PlainReductions) {
  RunCases({.topology = topology()}, Reductions({}, pairs()));
}

TEST_P(Collectives, FlatReductions) {
  RunCases({.topology = topology()}, Reductions({.flat = true}, 2));
}

TEST_P(Collectives, WidePartialSums) {
  RunCases({.topology = topology()}, Reductions({.wide_partial_sums = true}, 2));
}

TEST_P(Collectives, CompressedReductions) {
  RunCases({.topology = topology()},
           Reductions(Compressed(QuantSpec::Int8(), QuantSpec::Int4(Code::kSqrt)), pairs()));
}

TEST_P(Collectives, CompressedAcrossOnly) {
  RunCases({.topology = topology()},
           Reductions(Compressed(QuantSpec::None(), QuantSpec::Int8(64)), 2));
}

TEST_P(Collectives, CompressedInsideOnly) {
  RunCases({.topology = topology()},
           Reductions(Compressed(QuantSpec::Int4(Code::kLinear, 32), QuantSpec::None()), 2));
}

TEST_P(Collectives, CompressedGathers) {
  std::vector<CollectiveCase> cases;
  for (const QuantSpec& spec :
       {QuantSpec::Int8(), QuantSpec::Int4(Code::kLinear), QuantSpec::Int4(Code::kSqrt, 32)}) {
    for (DType dtype : kFloats) AddGathers(dtype, Compressed(spec, spec), cases);
  }
  RunCases({.topology = topology()}, cases);
}

TEST_P(Collectives, AllToAllBroadcastBarrier) {
  std::vector<CollectiveCase> cases;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kByte}) {
    for (int64_t count : kCounts) {
      cases.push_back({.kind = CollectiveKind::kAllToAll, .dtype = dtype, .count = count});
      for (int root = 0; root < topology().world(); ++root) {
        cases.push_back(
            {.kind = CollectiveKind::kBroadcast, .dtype = dtype, .count = count, .root = root});
      }
    }
  }
  cases.push_back({.kind = CollectiveKind::kBarrier, .dtype = DType::kByte});
  RunCases({.topology = topology()}, cases);
}

TEST_P(Collectives, AMillionAndThree) {
  std::vector<CollectiveCase> cases;
  const auto policy = Compressed(QuantSpec::Int8(), QuantSpec::Int4(Code::kSqrt));
  for (const CollectivePolicy& p : {CollectivePolicy{}, policy}) {
    for (auto kind :
         {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce}) {
      const bool coded = !p.lossless();
      cases.push_back({.kind = kind,
                       .in_place = coded,
                       .shards = coded ? Shards::kEqual : Shards::kUneven,
                       .count = 1000003,
                       .policy = p});
    }
  }
  cases.push_back({.kind = CollectiveKind::kAllToAll, .count = 1000003});
  cases.push_back({.kind = CollectiveKind::kBroadcast, .count = 1000003});
  RunCases({.topology = topology()}, cases);
}

TEST_P(Collectives, StartedAndPolled) {
  std::vector<CollectiveCase> cases;
  const auto policy = Compressed(QuantSpec::Int8(), QuantSpec::Int8());
  for (auto kind :
       {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce,
        CollectiveKind::kAllToAll, CollectiveKind::kBroadcast, CollectiveKind::kBarrier}) {
    for (int64_t count : {int64_t{7}, int64_t{4097}, int64_t{70001}}) {
      cases.push_back({.kind = kind, .count = count, .async = true});
      cases.push_back({.kind = kind, .count = count, .policy = policy, .async = true});
    }
  }
  RunCases({.topology = topology()}, cases);
}

}  // namespace
}  // namespace zpp::test
