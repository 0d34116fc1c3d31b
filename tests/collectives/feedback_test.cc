// Error feedback in reductions, over ranks that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/collective_cases.h"
#include "tests/collectives/feedback_cases.h"
#include "tests/collectives/split_cases.h"
#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

using testing::HasSubstr;

std::vector<FeedbackRun> RunAll(const WorldOptions& options, const FeedbackCase& c) {
  std::vector<FeedbackRun> runs(static_cast<size_t>(options.topology.world()));
  const auto result = RunWorld(options, [&](Communicator& comm) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(runs[static_cast<size_t>(comm.rank())], RunFeedback(comm, c));
    return std::string();
  });
  EXPECT_TRUE(result.ok()) << c.ToString() << ": " << result.status().message();
  return runs;
}

std::vector<std::pair<std::string, Topology>> FeedbackLayouts() {
  auto layouts = Layouts();
  layouts.erase(layouts.begin());  // a world of one encodes nothing
  return layouts;
}

std::vector<FeedbackCase> Cases(int world, int64_t elems) {
  std::vector<FeedbackCase> cases;
  for (auto kind : {CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce}) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
      for (FeedbackHops hops : {FeedbackHops::kLast, FeedbackHops::kAll}) {
        for (bool flat : {false, true}) {
          FeedbackCase c{.kind = kind, .op = op, .hops = hops, .elems = elems, .steps = 4};
          c.policy.flat = flat;
          if (kind == CollectiveKind::kReduceScatter) c.elems = elems / world * world;
          cases.push_back(c);
          c.shards.assign(static_cast<size_t>(world), 0);  // most are empty
          c.shards.front() = 777;
          c.shards.back() += c.elems - 777;
          cases.push_back(c);
        }
      }
    }
  }
  return cases;
}

TEST(Feedback, GivesTheBitsOfTheDefinition) {
  for (const auto& [name, topology] : FeedbackLayouts()) {
    for (const FeedbackCase& c : Cases(topology.world(), 12345)) {
      const auto want = NaiveFeedback(topology, c);
      const auto runs = RunAll({.topology = topology}, c);
      for (const FeedbackRun& run : runs) {
        ASSERT_EQ(run.received, want) << name << ", " << c.ToString();
      }
    }
  }
}

// What was received and what the residuals still hold is all that was put in: nothing gets lost,
// however many steps there are.
TEST(Feedback, SumsOverStepsLackTheLastResidualOnly) {
  const std::vector<int> lone = {1, 1}, even = {2, 2}, three = {2, 1, 2};
  for (const Topology& topology : {*Topology::Nodes(lone), *Topology::Nodes(even),
                                   *Topology::Nodes(three), Topology::Flat(3)}) {
    for (FeedbackCase c : Cases(topology.world(), 9001)) {
      c.steps = 12;
      // A hop without feedback must not lose anything itself.
      if (c.hops == FeedbackHops::kLast && !c.policy.flat && topology.tiers() > 1) {
        c.policy.intra = QuantSpec::None();
      }
      const auto runs = RunAll({.topology = topology}, c);
      std::vector<double> missing(static_cast<size_t>(c.elems), 0);  // put in, not received
      std::vector<double> owed(missing.size(), 0);
      const double unit = c.op == ReduceOp::kAvg ? topology.world() : 1;
      for (int r = 0; r < topology.world(); ++r) {
        const FeedbackRun& run = runs[static_cast<size_t>(r)];
        for (size_t i = 0; i < owed.size(); ++i) owed[i] += run.owed[i];
        for (int step = 0; step < c.steps; ++step) {
          const auto in = FeedbackInput(r, step, c.elems);
          for (size_t i = 0; i < owed.size(); ++i) missing[i] += in[i];
        }
      }
      for (const auto& step : runs[0].received) {
        for (size_t i = 0; i < owed.size(); ++i) missing[i] -= unit * static_cast<double>(step[i]);
      }
      double most = 0;
      for (size_t i = 0; i < owed.size(); ++i) {
        most = std::max(most, std::abs(owed[i]));
        ASSERT_NEAR(missing[i], owed[i], 2e-4) << c.ToString() << " element " << i;
      }
      EXPECT_GT(most, 0.02) << c.ToString();  // far more than the tolerance: the sum is not trivial
    }
  }
}

// One step beyond the definition: chunks, threads and timing change no bit, whatever type the
// residuals are kept in.
TEST(Feedback, ChunksThreadsAndTimingChangeNoBit) {
  const std::vector<int> three = {2, 1, 2};
  for (ResidualType type : {ResidualType::kF32, ResidualType::kBF16, ResidualType::kInt8}) {
    for (auto kind : {CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce}) {
      FeedbackCase c{.kind = kind, .type = type, .elems = 40000, .steps = 3};
      c.policy.inter.rounding = Rounding::kStochastic;
      c.policy.inter.code = Code::kLinear;
      std::string expected;
      for (int run = 0; run < 14; ++run) {
        WorldOptions options{.topology = *Topology::Nodes(three)};
        constexpr int64_t kChunks[] = {0, 1, 8192, 20000, 40000, 65536, int64_t{1} << 30};
        options.communicator.chunk_bytes = kChunks[run % 7];
        options.communicator.codec_threads = 1 + run / 7;
        if (run % 3 != 0) options.adversary_seed = static_cast<uint64_t>(run);
        const auto runs = RunAll(options, c);
        if (expected.empty()) expected = DigestOf(runs[0]);
        for (const FeedbackRun& of_rank : runs) ASSERT_EQ(DigestOf(of_rank), expected) << run;
      }
    }
  }
}

TEST(Feedback, BitsDoNotDependOnWhoOwnsAPart) {
  constexpr int64_t kTile = kFeedbackTile_elems;
  const std::vector<int> three = {2, 1, 2};
  const std::vector<std::vector<int64_t>> layouts = {{kTile, kTile, kTile, kTile, kTile + 99},
                                                     {0, 3 * kTile, 0, kTile, kTile + 99},
                                                     {5 * kTile, 0, 0, 0, 99},
                                                     {2 * kTile, kTile, 2 * kTile + 99, 0, 0}};
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    for (const FeedbackHops hops : {FeedbackHops::kLast, FeedbackHops::kAll}) {
      std::string expected;
      for (const auto& shards : layouts) {
        const FeedbackCase c{
            .op = op, .hops = hops, .elems = 5 * kTile + 99, .steps = 3, .shards = shards};
        const std::string digest = DigestOf(RunAll({.topology = *Topology::Nodes(three)}, c)[0]);
        if (expected.empty()) expected = digest;
        EXPECT_EQ(digest, expected) << c.ToString();
      }
    }
  }
}

// The last hop keeps what a rank has summed for its node: a node's share of the vector over its
// ranks. Both hops keep the whole vector besides.
TEST(Feedback, KeepsNoMoreThanItsRankEncodes) {
  const auto kept = [](const Topology& topology, FeedbackHops hops, ResidualType type) {
    std::vector<int64_t> elems(static_cast<size_t>(topology.world()));
    const auto result = RunWorld({.topology = topology}, [&](Communicator& comm) {
      auto made = comm.MakeFeedback(DType::kBF16, 1 << 16, {}, hops, type);
      if (!made.ok()) return Result<std::string>(made.status());
      for (const auto& piece : made->pieces()) {
        elems[static_cast<size_t>(comm.rank())] += piece.elems;
      }
      return Result<std::string>(std::to_string(made->bytes()));
    });
    EXPECT_TRUE(result.ok()) << result.status().message();
    return std::pair(elems, result.ok() ? (*result)[0] : "");
  };
  using Elems = std::vector<int64_t>;
  constexpr int64_t n = 1 << 16;
  const Topology even = *Topology::EvenNodes(4, 2), lone = *Topology::EvenNodes(2, 2);
  EXPECT_EQ(kept(even, FeedbackHops::kLast, ResidualType::kBF16),
            std::pair(Elems(4, n / 2), std::to_string(n)));
  EXPECT_EQ(kept(even, FeedbackHops::kAll, ResidualType::kBF16).first, Elems(4, n + n / 2));
  EXPECT_EQ(kept(lone, FeedbackHops::kLast, ResidualType::kF32),
            std::pair(Elems(2, n), std::to_string(4 * n)));
  EXPECT_EQ(kept(*Topology::EvenNodes(4, 4), FeedbackHops::kAll, ResidualType::kF32).first,
            Elems(4, n));
  const std::vector<int> uneven = {3, 1};
  const auto [by_rank, bytes] =
      kept(*Topology::Nodes(uneven), FeedbackHops::kLast, ResidualType::kF32);
  EXPECT_EQ(by_rank[0] + by_rank[1] + by_rank[2], n);
  EXPECT_EQ(by_rank[3], n);
  EXPECT_EQ(kept(Topology::Flat(1), FeedbackHops::kAll, ResidualType::kF32).first, Elems(1, 0));
}

// Residuals outlive a change of bits, and a step that does not compress neither uses nor loses
// them.
TEST(Feedback, AnUncompressedStepLeavesResidualsAsTheyAre) {
  const auto body = [](Communicator& comm) -> Result<std::string> {
    constexpr int64_t n = 4 * 5000;
    FeedbackCase c{.elems = n};
    CallOptions call = c.Call();
    ZPP_ASSIGN_OR_RETURN(auto feedback, comm.MakeFeedback(DType::kF32, n, call, FeedbackHops::kAll,
                                                          ResidualType::kBF16));
    call.feedback = &feedback;
    const std::vector<float> in = FeedbackInput(comm.rank(), 0, n);
    std::vector<float> out(n / 4);
    const auto residuals = [&] {
      std::vector<float> all;
      for (const auto& piece : feedback.pieces()) {
        std::vector<float> x(static_cast<size_t>(piece.elems));
        EXPECT_TRUE(piece.residual.Read(x).ok());
        all.insert(all.end(), x.begin(), x.end());
      }
      return all;
    };
    ZPP_RETURN_IF_ERROR(comm.ReduceScatter(In(in), Out(out), call));
    const auto first = residuals();
    ZPP_REQUIRE(std::any_of(first.begin(), first.end(), [](float v) { return v != 0; }));
    call.policy = CollectivePolicy::Lossless();
    ZPP_RETURN_IF_ERROR(comm.ReduceScatter(In(in), Out(out), call));
    ZPP_REQUIRE(residuals() == first);
    ZPP_RETURN_IF_ERROR(feedback.Scale(0.5f));
    auto half = first;
    for (float& v : half) v *= 0.5f;
    ZPP_REQUIRE(residuals() == half);
    call.policy = {.intra = QuantSpec::Int8(), .inter = QuantSpec::Int8(), .min_compress_bytes = 0};
    ZPP_RETURN_IF_ERROR(comm.ReduceScatter(In(in), Out(out), call));
    ZPP_REQUIRE(residuals() != half);
    feedback.Drop();
    ZPP_REQUIRE(residuals() == std::vector<float>(first.size(), 0));
    return std::string();
  };
  const auto result = RunWorld({.topology = *Topology::EvenNodes(4, 2)}, body);
  EXPECT_TRUE(result.ok()) << result.status().message();
}

// Of h, not of the sum: a large residual is a part of what is to be encoded, not an error.
TEST(Feedback, StatisticsCompareWithWhatWasEncoded) {
  const auto body = [](Communicator& comm) -> Result<std::string> {
    constexpr int64_t n = 8192;
    FeedbackCase c{.elems = n};
    CallOptions call = c.Call();
    ErrorStats stats;
    call.stats = &stats;
    ZPP_ASSIGN_OR_RETURN(auto feedback, comm.MakeFeedback(DType::kF32, n, call, FeedbackHops::kAll,
                                                          ResidualType::kF32));
    for (auto& piece : feedback.pieces()) {
      const std::vector<float> large(static_cast<size_t>(piece.elems), 1000);
      ZPP_RETURN_IF_ERROR(piece.residual.Write(large));
    }
    call.feedback = &feedback;
    const std::vector<float> in = FeedbackInput(comm.rank(), 0, n);
    std::vector<float> out(n / 2);
    ZPP_RETURN_IF_ERROR(comm.ReduceScatter(In(in), Out(out), call));
    ZPP_REQUIRE(stats.sum_squared_value > 0.9e6 * n && stats.relative_error() < 0.1);
    ZPP_REQUIRE(out[7] > 1500);
    return std::string();
  };
  const auto result = RunWorld({.topology = *Topology::EvenNodes(2, 2)}, body);
  EXPECT_TRUE(result.ok()) << result.status().message();
}

TEST(Feedback, NaNAndInfinityLeaveNoResidual) {
  const auto body = [](Communicator& comm) -> Result<std::string> {
    constexpr int64_t n = 4096;
    CallOptions call = FeedbackCase{.elems = n}.Call();
    ZPP_ASSIGN_OR_RETURN(auto feedback, comm.MakeFeedback(DType::kF32, n, call, FeedbackHops::kAll,
                                                          ResidualType::kBF16));
    call.feedback = &feedback;
    std::vector<float> in = FeedbackInput(comm.rank(), 0, n), out(n / 2);
    in[5] = NAN;
    in[n - 1] = INFINITY;
    ZPP_RETURN_IF_ERROR(comm.ReduceScatter(In(in), Out(out), call));
    ZPP_REQUIRE(std::isnan(out[comm.rank() == 0 ? 5 : n / 2 - 1]));
    for (const auto& piece : feedback.pieces()) {
      std::vector<float> x(static_cast<size_t>(piece.elems));
      ZPP_RETURN_IF_ERROR(piece.residual.Read(x));
      ZPP_REQUIRE(std::all_of(x.begin(), x.end(), [](float v) { return std::isfinite(v); }));
    }
    return std::string();
  };
  const auto result = RunWorld({.topology = *Topology::EvenNodes(2, 2)}, body);
  EXPECT_TRUE(result.ok()) << result.status().message();
}

TEST(Feedback, RefusesWhatItDoesNotFit) {
  auto comms = ConnectThreads(2);
  Communicator& comm = *comms[0];
  constexpr int64_t n = 4096;
  CallOptions call = FeedbackCase{}.Call();
  const auto make = [&](int64_t elems, const CallOptions& with, CollectiveKind kind) {
    auto made =
        comm.MakeFeedback(DType::kF32, elems, with, FeedbackHops::kAll, ResidualType::kF32, kind);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return std::move(made).value();
  };
  std::vector<float> x(n), y(n);
  const auto why = [&](CollectiveKind kind, ReduceFeedback feedback) {
    call.feedback = &feedback;
    const Vec half{DType::kF32, y.data(), n / 2};
    Status status;
    if (kind == CollectiveKind::kReduceScatter) status = comm.ReduceScatter(In(x), half, call);
    if (kind == CollectiveKind::kAllReduce) status = comm.AllReduce(In(x), Out(y), call);
    if (kind == CollectiveKind::kAllGather) {
      status = comm.AllGather({DType::kF32, x.data(), n / 2}, Out(y), call);
    }
    if (kind == CollectiveKind::kBroadcast) status = comm.Broadcast(Out(y), 0, call);
    if (kind == CollectiveKind::kAllToAll) status = comm.AllToAll(In(x), Out(y), call);
    if (kind == CollectiveKind::kBarrier) status = comm.Barrier(call);
    call.feedback = nullptr;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    return status.message();
  };
  constexpr auto kReduce = CollectiveKind::kReduceScatter;
  for (auto kind : {CollectiveKind::kAllGather, CollectiveKind::kBroadcast,
                    CollectiveKind::kAllToAll, CollectiveKind::kBarrier}) {
    EXPECT_THAT(why(kind, make(n, call, kReduce)), HasSubstr("takes no feedback"));
    EXPECT_FALSE(
        comm.MakeFeedback(DType::kF32, n, call, FeedbackHops::kAll, ResidualType::kF32, kind).ok());
  }
  EXPECT_THAT(why(kReduce, make(2 * n, call, kReduce)), HasSubstr("made for 8192 elements"));
  EXPECT_THAT(why(kReduce, ReduceFeedback()), HasSubstr("made for 0 elements"));
  CallOptions other = call;
  other.op = ReduceOp::kAvg;
  EXPECT_THAT(why(kReduce, make(n, other, kReduce)), HasSubstr("another op"));
  other = call;
  other.policy->flat = true;
  EXPECT_THAT(why(kReduce, make(n, other, kReduce)), HasSubstr("flat"));
  const std::vector<int64_t> shards = {n - 1, 1};
  other = call;
  other.shard_elems = shards;
  EXPECT_THAT(why(CollectiveKind::kAllReduce, make(n, other, kReduce)), HasSubstr("shard_elems"));
  EXPECT_TRUE(comm.status().ok());  // nothing was sent
  EXPECT_FALSE(
      comm.MakeFeedback(DType::kByte, n, call, FeedbackHops::kAll, ResidualType::kF32).ok());
  EXPECT_FALSE(
      comm.MakeFeedback(DType::kF32, 7, call, FeedbackHops::kAll, ResidualType::kF32).ok());
}

}  // namespace
}  // namespace zpp::test
