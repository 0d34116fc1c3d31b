// Arguments, started works, failures and endings of a communicator, over ranks that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "collectives/transport/fault.h"
#include "collectives/transport/in_process.h"
#include "tests/collectives/collective_cases.h"
#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

using testing::HasSubstr;

ConstVec In(const std::vector<float>& x) {
  return {DType::kF32, x.data(), static_cast<int64_t>(x.size())};
}
Vec Out(std::vector<float>& x) { return {DType::kF32, x.data(), static_cast<int64_t>(x.size())}; }

// `world` communicators over the in-process transport; wrap(rank, transport) may replace a
// transport.
using Wrap = std::function<std::unique_ptr<Transport>(int, std::unique_ptr<Transport>)>;
std::vector<std::unique_ptr<Communicator>> MakeComms(int world,
                                                     const CommunicatorOptions& options = {},
                                                     const Wrap& wrap = {}) {
  InProcessWorld net = MakeInProcessWorld(world);
  std::vector<std::unique_ptr<Communicator>> comms;
  for (int r = 0; r < world; ++r) {
    auto transport = std::move(net.transports[static_cast<size_t>(r)]);
    if (wrap) transport = wrap(r, std::move(transport));
    auto comm = Communicator::Create(std::move(transport), net.controls[static_cast<size_t>(r)],
                                     Topology::Flat(world), options);
    EXPECT_TRUE(comm.ok()) << comm.status().ToString();
    comms.push_back(std::move(comm).value());
  }
  return comms;
}

double SecondsOf(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(Communicator, WorldOfOneNeedsNoTransport) {
  auto comm = Communicator::Create(nullptr, nullptr, Topology::Flat(1), {});
  ASSERT_TRUE(comm.ok());
  const std::vector<float> in = {1, 2, 3};
  std::vector<float> out(3, -1);
  ASSERT_TRUE((*comm)->AllReduce(In(in), Out(out)).ok());
  EXPECT_EQ(out, in);
  EXPECT_TRUE((*comm)->Barrier().ok());
  EXPECT_EQ((*comm)->traffic().messages, 0);
  EXPECT_TRUE((*comm)->Shutdown(Deadline::In(1)).ok());
}

TEST(Communicator, RefusesOptionsThatCannotWork) {
  const auto refused = [](const CommunicatorOptions& options) {
    const auto comm = Communicator::Create(nullptr, nullptr, Topology::Flat(1), options);
    return comm.ok() ? std::string("accepted") : comm.status().message();
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refused({.timeout_s = 0}), HasSubstr("timeout_s"));
  EXPECT_THAT(refused({.timeout_s = nan}), HasSubstr("timeout_s"));
  EXPECT_THAT(refused({.codec_threads = 0}), HasSubstr("codec_threads"));
  EXPECT_THAT(refused({.codec_threads = 1000}), HasSubstr("codec_threads"));
  EXPECT_THAT(refused({.chunk_bytes = -1}), HasSubstr("chunk_bytes"));
  EXPECT_THAT(refused({.policy = {.max_rel_error = nan}}), HasSubstr("max_rel_error"));
  EXPECT_THAT(refused({.policy = {.min_compress_bytes = -2}}), HasSubstr("min_compress_bytes"));
  EXPECT_THAT(refused({.policy = {.intra = QuantSpec::Int8(33)}}), HasSubstr("block"));
  EXPECT_FALSE(Communicator::Create(nullptr, nullptr, Topology::Flat(2), {}).ok());
}

TEST(Work, SeveralRunInTheOrderTheyWereStarted) {
  const auto result =
      RunWorld({.topology = Topology::Flat(3)}, [](Communicator& comm) -> Result<std::string> {
        std::vector<std::vector<float>> x(6, std::vector<float>(1000, 1.0f));
        std::vector<Work> works;
        for (auto& v : x) works.push_back(comm.StartAllReduce(In(v), Out(v)));
        // Waiting for the fourth ends the first three; polling the last ends the rest.
        ZPP_RETURN_IF_ERROR(works[3].Wait(Deadline::In(30)));
        for (size_t i = 0; i < 4; ++i) ZPP_REQUIRE(works[i].Poll() && works[i].status().ok());
        const Deadline limit = Deadline::In(30);
        while (!works[5].Poll()) {
          ZPP_REQUIRE(!limit.expired());
          std::this_thread::yield();
        }
        ZPP_REQUIRE(works[4].status().ok());
        for (const auto& v : x) ZPP_REQUIRE(v == std::vector<float>(1000, 3.0f));
        return std::string();
      });
  EXPECT_TRUE(result.ok()) << result.status().message();
}

TEST(Work, AHandleThatIsDroppedStillRuns) {
  const auto result =
      RunWorld({.topology = Topology::Flat(2)}, [](Communicator& comm) -> Result<std::string> {
        std::vector<float> x(100, 1.0f);
        (void)comm.StartAllReduce(In(x), Out(x));
        ZPP_RETURN_IF_ERROR(comm.Barrier());
        ZPP_REQUIRE(x == std::vector<float>(100, 2.0f));
        return std::string();
      });
  EXPECT_TRUE(result.ok()) << result.status().message();
}

TEST(Work, IsUnavailableWhileItRunsAndAbortedWithoutItsCommunicator) {
  auto comms = MakeComms(2);
  std::vector<float> x(100, 1.0f);
  Work work = comms[0]->StartAllReduce(In(x), Out(x));
  EXPECT_FALSE(work.Poll());
  EXPECT_EQ(work.status().code(), StatusCode::kUnavailable);
  Work copy = work;
  comms[0].reset();
  EXPECT_TRUE(work.Poll());
  EXPECT_EQ(copy.status().code(), StatusCode::kAborted);
  EXPECT_EQ(work.Wait(Deadline::Never()).code(), StatusCode::kAborted);
}

TEST(Communicator, AbortWakesABlockedCallAndSticks) {
  auto comms = MakeComms(2);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    comms[0]->Abort(Status(StatusCode::kAborted, "the user pressed a key"));
  });
  const double seconds = SecondsOf([&] {
    const Status status = comms[0]->Barrier();
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    EXPECT_THAT(status.message(), HasSubstr("pressed a key"));
  });
  other.join();
  EXPECT_LT(seconds, 10);
  EXPECT_THAT(comms[0]->Barrier().message(), HasSubstr("pressed a key"));
  EXPECT_THAT(comms[0]->status().message(), HasSubstr("pressed a key"));
  // The other rank learns it too.
  const Status there = comms[1]->Barrier();
  EXPECT_EQ(there.code(), StatusCode::kAborted);
  EXPECT_THAT(there.message(), HasSubstr("pressed a key"));
}

TEST(Communicator, ALostRankIsNamed) {
  auto comms = MakeComms(3);
  comms[1].reset();
  for (int r : {0, 2}) {
    std::vector<float> x(10, 1.0f);
    const Status status = comms[static_cast<size_t>(r)]->AllReduce(In(x), Out(x));
    EXPECT_EQ(status.code(), StatusCode::kPeerLost) << status.ToString();
    EXPECT_EQ(status.lost_rank(), 1);
    EXPECT_EQ(comms[static_cast<size_t>(r)]->Barrier().lost_rank(), 1);
  }
}

TEST(Communicator, ADeadlineEndsACallThatNobodyJoins) {
  for (const bool polls : {false, true}) {
    auto comms = MakeComms(2, {.timeout_s = 0.2});
    const double seconds = SecondsOf([&] {
      Status status;
      if (polls) {
        Work work = comms[0]->StartBarrier();
        while (!work.Poll()) std::this_thread::yield();
        status = work.status();
      } else {
        status = comms[0]->Barrier();
      }
      EXPECT_FALSE(status.ok());
      EXPECT_THAT(status.message(), HasSubstr("1"));  // who is owed
      EXPECT_EQ(RemedyFor(status.code()), Remedy::kRebuild) << status.ToString();
    });
    EXPECT_GE(seconds, 0.19);
    EXPECT_LT(seconds, 10);
    EXPECT_FALSE(comms[0]->status().ok());
  }
}

// Whoever got an error may free his buffers: a message of theirs that a peer has not taken yet is
// taken back.
TEST(Work, NobodyReadsTheCallersMemoryAfterAFailure) {
  for (const bool destroyed : {false, true}) {
    auto net = MakeInProcessGroup(2);  // without a control plane: nobody tells the peer
    std::vector<std::unique_ptr<Communicator>> comms;
    for (auto& transport : net) {
      comms.push_back(*Communicator::Create(std::move(transport), nullptr, Topology::Flat(2), {}));
    }
    std::vector<float> x(1000, 1.0f), y(1000, 0.0f);
    Work work = comms[0]->StartBroadcast(Out(x), 0);
    ASSERT_FALSE(work.Poll());
    if (destroyed) {
      comms[0].reset();
    } else {
      comms[0]->Abort(Status(StatusCode::kAborted, "enough"));
    }
    ASSERT_TRUE(work.Poll());
    x.assign(1000, -1.0f);
    const Status there = comms[1]->Broadcast(Out(y), 0, {.deadline = Deadline::In(0.05)});
    EXPECT_FALSE(there.ok());
    EXPECT_EQ(y, std::vector<float>(1000, 0.0f));
  }
}

// Who computes for longer than the timeout between two looks has not waited so long.
TEST(Work, TheCallersOwnAbsenceIsNoDelayOfItsPeers) {
  auto comms = MakeComms(2, {.timeout_s = 0.5});
  std::vector<float> x(100, 1.0f), y(100, 2.0f);
  Work mine = comms[0]->StartAllReduce(In(x), Out(x));
  EXPECT_FALSE(mine.Poll());
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  EXPECT_FALSE(mine.Poll());
  Work theirs = comms[1]->StartAllReduce(In(y), Out(y));
  bool done = false;
  while (!done) done = mine.Poll() & theirs.Poll();
  EXPECT_TRUE(mine.status().ok()) << mine.status().ToString();
  EXPECT_TRUE(theirs.status().ok()) << theirs.status().ToString();
  EXPECT_EQ(x, y);
}

TEST(Communicator, WorksInLineFailWithTheFirst) {
  auto comms = MakeComms(2);
  std::vector<float> x(10), y(10);
  Work first = comms[0]->StartAllReduce(In(x), Out(x));
  Work second = comms[0]->StartAllReduce(In(y), Out(y));
  comms[1].reset();
  EXPECT_EQ(second.Wait(Deadline::In(10)).lost_rank(), 1);
  EXPECT_EQ(first.status().lost_rank(), 1);
}

TEST(Communicator, ADamagedHeaderIsDataLossThatNamesTheSender) {
  // Rank 1 sends one message to rank 0; the flipped bit lies in its header for some seeds and in
  // codes for others, where nothing can see it.
  int caught = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    auto comms =
        MakeComms(2, {.check_wire = true}, [&](int rank, std::unique_ptr<Transport> inner) {
          if (rank == 0) return inner;
          return MakeFaulty(std::move(inner), {.kind = FaultKind::kFlipBit, .seed = seed});
        });
    CallOptions call;
    call.policy = CollectivePolicy{.intra = QuantSpec::Int8(32), .min_compress_bytes = 0};
    std::vector<Status> statuses(2);
    const auto outcomes = RunThreads(2, [&](int rank) -> Result<std::string> {
      const auto at = static_cast<size_t>(rank);
      const std::vector<float> in(4, 1.0f);
      std::vector<float> out(8);
      statuses[at] = comms[at]->AllGather(In(in), Out(out), call);
      return std::string();
    });
    ASSERT_TRUE(AllOk(outcomes));
    if (statuses[0].ok()) continue;
    ++caught;
    EXPECT_EQ(statuses[0].code(), StatusCode::kDataLoss) << statuses[0].ToString();
    EXPECT_THAT(statuses[0].message(), HasSubstr("rank 1"));
  }
  EXPECT_GE(caught, 8);
}

TEST(Communicator, ATruncatedMessageIsDataLoss) {
  auto comms = MakeComms(2, {}, [&](int rank, std::unique_ptr<Transport> inner) {
    if (rank == 0) return inner;
    return MakeFaulty(std::move(inner), {.kind = FaultKind::kTruncate});
  });
  std::vector<Status> statuses(2);
  const auto outcomes = RunThreads(2, [&](int rank) -> Result<std::string> {
    const auto at = static_cast<size_t>(rank);
    std::vector<float> x(64, 1.0f);
    statuses[at] = comms[at]->AllReduce(In(x), Out(x));
    return std::string();
  });
  ASSERT_TRUE(AllOk(outcomes));
  EXPECT_EQ(statuses[0].code(), StatusCode::kDataLoss) << statuses[0].ToString();
}

TEST(Communicator, IsGoneAfterShutdown) {
  auto comms = MakeComms(2);
  const auto outcomes = RunThreads(2, [&](int rank) -> Result<std::string> {
    Communicator& comm = *comms[static_cast<size_t>(rank)];
    std::vector<float> x(100, 1.0f);
    Work work = comm.StartAllReduce(In(x), Out(x));  // Shutdown ends what is in line
    ZPP_RETURN_IF_ERROR(comm.Shutdown(Deadline::In(10)));
    ZPP_REQUIRE(work.status().ok() && x[99] == 2);
    ZPP_REQUIRE(comm.Barrier().code() == StatusCode::kAborted);
    return std::string();
  });
  EXPECT_TRUE(AllOk(outcomes));
}

TEST(Communicator, ExplainSaysWhatACallWouldDo) {
  auto comms = MakeComms(2);
  const auto plan = comms[0]->Explain(CollectiveKind::kAllGather, DType::kF32, 1 << 20,
                                      {.policy = CollectivePolicy::Weights()});
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->reason.empty());
  EXPECT_EQ(plan->rank, 0);
  const auto small = comms[0]->Explain(CollectiveKind::kAllGather, DType::kF32, 128,
                                       {.policy = CollectivePolicy::Weights()});
  ASSERT_TRUE(small.ok());
  EXPECT_THAT(small->reason, HasSubstr("not compressed below"));
  EXPECT_FALSE(comms[0]->Explain(CollectiveKind::kAllGather, DType::kF32, 3).ok());
}

TEST(Communicator, NonfiniteValuesPassThroughCompression) {
  const auto result =
      RunWorld({.topology = Topology::Flat(3)}, [](Communicator& comm) -> Result<std::string> {
        CallOptions call;
        call.policy =
            CollectivePolicy{.intra = QuantSpec::Int4(Code::kSqrt), .min_compress_bytes = 0};
        std::vector<float> x(3 * 512, 0.5f);
        if (comm.rank() == 1) x[600] = std::numeric_limits<float>::quiet_NaN();
        if (comm.rank() == 2) x[1500] = std::numeric_limits<float>::infinity();
        if (comm.rank() == 0) x[10] = 1e-40f;  // a subnormal among others
        ErrorStats stats;
        call.stats = &stats;
        ZPP_RETURN_IF_ERROR(comm.AllReduce(In(x), Out(x), call));
        for (size_t i = 0; i < x.size(); ++i) {
          const bool hit = i / 128 == 600 / 128 || i / 128 == 1500 / 128;
          ZPP_REQUIRE_MSG(std::isnan(x[i]) == hit, std::to_string(i));
        }
        ZPP_REQUIRE(comm.rank() == 0 || stats.nonfinite > 0);
        return std::string();
      });
  EXPECT_TRUE(result.ok()) << result.status().message();
}

// Two nodes of two ranks, int8 inside, int4 across: each hop's error in its own statistics.
TEST(Communicator, StatisticsOfTheLastHopAreKeptApart) {
  const auto declared = Topology::EvenNodes(4, 2);
  ASSERT_TRUE(declared.ok());
  for (int threads : {1, 2}) {
    const auto result = RunWorld(
        {.topology = *declared, .communicator = {.codec_threads = threads}},
        [](Communicator& comm) -> Result<std::string> {
          constexpr int64_t kElems = 1 << 19;
          const int64_t shard = kElems / comm.world();
          std::vector<float> x(kElems), out(static_cast<size_t>(shard));
          for (size_t i = 0; i < x.size(); ++i) {
            x[i] = std::sin(static_cast<float>(i * 7 + static_cast<size_t>(comm.rank())));
          }
          ErrorStats total, inner, last;
          CallOptions call;
          call.policy = CollectivePolicy::Gradients();
          call.policy->min_compress_bytes = 0;
          call.stats = &total;
          ZPP_RETURN_IF_ERROR(comm.ReduceScatter(In(x), Out(out), call));
          call.stats = &inner;
          call.last_hop_stats = &last;
          ZPP_RETURN_IF_ERROR(comm.ReduceScatter(In(x), Out(out), call));
          ZPP_REQUIRE(inner.relative_error() > 0 && inner.relative_error() < 0.01);  // int8
          ZPP_REQUIRE(last.relative_error() > 0.05 && last.relative_error() < 0.2);  // int4
          // What a node has summed for this rank: half the vector.
          ZPP_REQUIRE(std::abs(static_cast<double>(last.nonzero) / kElems - 0.5) < 0.01);
          ErrorStats both = inner;
          both.Merge(last);
          ZPP_REQUIRE(both.nonzero == total.nonzero && both.zeroed == total.zeroed);
          ZPP_REQUIRE(std::abs(both.relative_error() / total.relative_error() - 1) < 1e-9);
          ErrorStats gather_last;
          call.last_hop_stats = &gather_last;
          call.policy = CollectivePolicy::Weights();
          call.policy->min_compress_bytes = 0;
          inner = {};
          ZPP_RETURN_IF_ERROR(comm.AllGather(In(out), Out(x), call));
          ZPP_REQUIRE(gather_last.nonzero == 0 && inner.nonzero > 0);  // a gather has no last hop
          return std::string();
        });
    EXPECT_TRUE(result.ok()) << result.status().message();
  }
}

}  // namespace
}  // namespace zpp::test
