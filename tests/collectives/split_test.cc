// Communicators that were split from one another, over ranks that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <string>
#include <vector>

#include "tests/collectives/collective_cases.h"
#include "tests/collectives/split_cases.h"
#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

using testing::HasSubstr;
using Groups = std::vector<std::unique_ptr<Communicator>>;

void Expect(const Topology& topology, const CommBody& body) {
  for (const std::optional<uint64_t> seed :
       {std::optional<uint64_t>(), std::optional<uint64_t>(5)}) {
    const auto result = RunWorld({.topology = topology, .adversary_seed = seed}, body);
    EXPECT_TRUE(result.ok()) << result.status().message();
  }
}

TEST(Split, MegatronGroups) { Expect(MegatronTopology(), RunMegatron); }

// A color may be given to any number of ranks, in any order; a group of one talks to nobody.
TEST(Split, UnevenGroupsOrderedByKey) {
  Expect(Topology::Flat(6), [](Communicator& comm) -> Result<std::string> {
    const int color = std::vector<int>{7, 7, 0, 7, -1, 7}[static_cast<size_t>(comm.rank())];
    ZPP_ASSIGN_OR_RETURN(auto group, comm.Split(color, -comm.rank()));
    ZPP_REQUIRE((group == nullptr) == (color < 0));
    if (!group) return std::string();
    ZPP_REQUIRE(group->world() == (color == 7 ? 4 : 1));
    const std::vector<int> reversed = {5, 3, 1, 0};
    if (color == 7) ZPP_REQUIRE(reversed[static_cast<size_t>(group->rank())] == comm.rank());
    const std::vector<int32_t> mine = {comm.rank()};
    std::vector<int32_t> all(static_cast<size_t>(group->world()), -1);
    ZPP_RETURN_IF_ERROR(group->AllGather({DType::kByte, mine.data(), 4},
                                         {DType::kByte, all.data(), 4 * group->world()}));
    ZPP_REQUIRE(color == 7 ? all == std::vector<int32_t>(reversed.begin(), reversed.end())
                           : all == mine);
    ZPP_RETURN_IF_ERROR(RunCase(*group, {.count = 1001}).status());
    return std::string();
  });
}

// The group sees the nodes of its own ranks, scattered and uneven as they are, and sums hop by hop.
TEST(Split, AGroupHasItsOwnNodes) {
  const std::vector<int> nodes = {3, 3, 2};
  const CollectivePolicy coded{
      .intra = QuantSpec::Int8(), .inter = QuantSpec::Int4(Code::kSqrt), .min_compress_bytes = 0};
  Expect(*Topology::Nodes(nodes), [&](Communicator& comm) -> Result<std::string> {
    // {0,1,3,6,7}: two of the first node, one of the second, two of the third. {2,4,5}: the rest.
    const bool first = comm.rank() != 2 && comm.rank() != 4 && comm.rank() != 5;
    ZPP_ASSIGN_OR_RETURN(auto group, comm.Split(first ? 1 : 0));
    ZPP_REQUIRE(group->topology().num_nodes() == (first ? 3 : 2));
    ZPP_REQUIRE(group->topology().NodeGroup(0).size() == (first ? 2u : 1u));
    for (auto kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
                      CollectiveKind::kAllReduce, CollectiveKind::kAllToAll}) {
      for (const CollectivePolicy& policy : {CollectivePolicy{}, coded}) {
        ZPP_RETURN_IF_ERROR(
            RunCase(*group, {.kind = kind, .count = 5003, .policy = policy}).status());
      }
    }
    return std::string();
  });
}

TEST(Split, NestedGroupsKeepTheirMessagesApart) {
  Expect(Topology::Flat(8), [](Communicator& comm) -> Result<std::string> {
    Groups family;
    Communicator* at = &comm;
    while (at->world() > 1) {  // 8, 4, 2, 1
      ZPP_ASSIGN_OR_RETURN(auto half, at->Split(at->rank() % 2, at->rank()));
      family.push_back(std::move(half));
      at = family.back().get();
    }
    ZPP_REQUIRE(family.size() == 3);
    std::vector<std::vector<float>> x;
    std::vector<Work> works;
    for (int round = 0; round < 3; ++round) {
      for (const auto& group : family) {
        auto& v = x.emplace_back(3000, static_cast<float>(comm.rank() + 1));
        works.push_back(group->StartAllReduce(In(v), Out(v)));
      }
      auto& v = x.emplace_back(3000, static_cast<float>(comm.rank() + 1));
      works.push_back(comm.StartAllReduce(In(v), Out(v)));
    }
    for (Work& work : works) ZPP_RETURN_IF_ERROR(work.Wait(Deadline::In(30)));
    // Ranks r, r + 2, .. of 8; r, r + 4; r alone; all.
    const float r = static_cast<float>(comm.rank());
    const float two = static_cast<float>(comm.rank() % 2),
                four = static_cast<float>(comm.rank() % 4);
    const float want[] = {4 * two + 16, 2 * four + 6, r + 1, 36};
    for (size_t i = 0; i < x.size(); ++i) {
      ZPP_REQUIRE_MSG(x[i] == std::vector<float>(3000, want[i % 4]), std::to_string(i));
    }
    return std::string();
  });
}

// Ranks wait for the same works in opposite orders.
TEST(Split, WaitsInAnyOrder) {
  Expect(Topology::Flat(4), [](Communicator& comm) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(auto a, comm.Split(0));
    ZPP_ASSIGN_OR_RETURN(auto b, comm.Split(comm.rank() / 2));
    for (int round = 0; round < 20; ++round) {
      std::vector<float> x(20000, 1), y(20000, 2);
      Work first = a->StartAllReduce(In(x), Out(x));
      Work second = b->StartAllReduce(In(y), Out(y));
      if ((comm.rank() + round) % 2 == 0) std::swap(first, second);
      ZPP_RETURN_IF_ERROR(first.Wait(Deadline::In(30)));
      ZPP_RETURN_IF_ERROR(second.Wait(Deadline::In(30)));
      ZPP_REQUIRE(x == std::vector<float>(20000, 4) && y == std::vector<float>(20000, 4));
    }
    return std::string();
  });
}

TEST(Split, TrafficIsCountedWhereItWasMade) {
  Expect(Topology::Flat(4), [](Communicator& comm) -> Result<std::string> {
    ZPP_ASSIGN_OR_RETURN(auto group, comm.Split(comm.rank() / 2));
    const Traffic before = comm.traffic();
    std::vector<float> x(4096, 1);
    ZPP_RETURN_IF_ERROR(group->AllReduce(In(x), Out(x)));
    ZPP_ASSIGN_OR_RETURN(const auto planned,
                         group->PlannedBytes(CollectiveKind::kAllReduce, DType::kF32, 4096));
    ZPP_REQUIRE(group->traffic().sent_bytes == planned && planned[0] == 4096 * 4);
    ZPP_REQUIRE(comm.traffic().sent_bytes == before.sent_bytes);
    return std::string();
  });
}

// 31 groups at once and no more; those that are gone on all ranks make room, others do not.
TEST(Split, IdsRunOutAndComeBack) {
  Expect(Topology::Flat(3), [](Communicator& comm) -> Result<std::string> {
    Groups groups;
    for (int i = 0; i < 31; ++i) {
      ZPP_ASSIGN_OR_RETURN(auto group, comm.Split(0));
      groups.push_back(std::move(group));
    }
    const auto refused = comm.Split(0);
    ZPP_REQUIRE(refused.status().code() == StatusCode::kResourceExhausted);
    ZPP_REQUIRE(refused.status().message().find("31 groups") != std::string::npos);
    if (comm.rank() == 0) groups.erase(groups.begin() + 4);
    ZPP_RETURN_IF_ERROR(comm.Barrier());
    ZPP_REQUIRE(comm.Split(0).status().code() == StatusCode::kResourceExhausted);
    if (comm.rank() != 0) groups.erase(groups.begin() + 4);
    for (int i = 0; i < 40; ++i) {  // again and again
      ZPP_ASSIGN_OR_RETURN(auto group, comm.Split(0));
      ZPP_RETURN_IF_ERROR(RunCase(*group, {.count = 100}).status());
    }
    for (const auto& group : groups) ZPP_RETURN_IF_ERROR(group->Barrier());
    return std::string();
  });
}

TEST(Split, GroupsOutliveTheirParent) {
  auto comms = ConnectThreads(3);
  std::barrier done(3);  // a family whose root was not shut down abandons its peers at the end
  const auto outcomes = RunThreads(3, [&](int rank) -> Result<std::string> {
    std::unique_ptr<Communicator> root = std::move(comms[static_cast<size_t>(rank)]);
    ZPP_ASSIGN_OR_RETURN(auto group, root->Split(0));
    ZPP_ASSIGN_OR_RETURN(auto pair, group->Split(rank < 2 ? 0 : 1));
    root.reset();
    ZPP_RETURN_IF_ERROR(RunCase(*group, {.count = 5000}).status());
    ZPP_RETURN_IF_ERROR(pair->Shutdown(Deadline::In(30)));
    ZPP_REQUIRE(pair->Barrier().code() == StatusCode::kAborted);
    ZPP_RETURN_IF_ERROR(RunCase(*group, {.count = 5000}).status());  // it alone has ended
    pair.reset();
    ZPP_RETURN_IF_ERROR(group->Shutdown(Deadline::In(30)));
    done.arrive_and_wait();
    return std::string();
  });
  EXPECT_TRUE(AllOk(outcomes));
}

TEST(Split, TheRootsShutdownEndsGroupsAfterTheirWorks) {
  auto comms = ConnectThreads(2);
  const auto outcomes = RunThreads(2, [&](int rank) -> Result<std::string> {
    Communicator& comm = *comms[static_cast<size_t>(rank)];
    ZPP_ASSIGN_OR_RETURN(auto group, comm.Split(0));
    std::vector<float> x(50000, 1);
    const Work work = group->StartAllReduce(In(x), Out(x));
    ZPP_RETURN_IF_ERROR(comm.Shutdown(Deadline::In(30)));
    ZPP_REQUIRE(work.status().ok() && x == std::vector<float>(50000, 2));
    ZPP_REQUIRE(group->Barrier().code() == StatusCode::kAborted);
    ZPP_REQUIRE(comm.Split(0).status().code() == StatusCode::kAborted);
    return std::string();
  });
  EXPECT_TRUE(AllOk(outcomes));
}

// One that fails fails its whole family, on ranks that are in no group with it too.
TEST(Split, AFailureReachesEveryGroup) {
  for (const bool of_group : {true, false}) {
    auto comms = ConnectThreads(4);
    std::barrier split(4);
    const auto outcomes = RunThreads(4, [&](int rank) -> Result<std::string> {
      Communicator& root = *comms[static_cast<size_t>(rank)];
      ZPP_ASSIGN_OR_RETURN(auto pair, root.Split(rank / 2));
      ZPP_ASSIGN_OR_RETURN(auto other, root.Split(rank % 2));
      split.arrive_and_wait();
      if (rank == 3) {
        (of_group ? *pair : root).Abort({StatusCode::kAborted, "enough"});
        ZPP_REQUIRE(other->status().code() == StatusCode::kAborted);
        ZPP_REQUIRE(root.status().code() == StatusCode::kAborted);
        return std::string();
      }
      std::vector<float> x(1000, 1);
      Status status;
      for (int i = 0; i < 100000 && status.ok(); ++i) {
        status =
            (i % 2 == 0 ? *pair : *other).AllReduce(In(x), Out(x), {.deadline = Deadline::In(20)});
      }
      ZPP_REQUIRE(status.code() == StatusCode::kAborted);
      ZPP_REQUIRE(status.message().find("rank 3") != std::string::npos);
      for (Communicator* each : {&root, pair.get(), other.get()}) {
        ZPP_REQUIRE(each->status().message() == status.message());
      }
      return std::string();
    });
    EXPECT_TRUE(AllOk(outcomes));
  }
}

// Its peers must not wait for it, though the transport lives on.
TEST(Split, AGroupThatGoesWithWorksUnfinishedFailsTheFamily) {
  auto comms = ConnectThreads(2);
  std::barrier split(2);
  const auto outcomes = RunThreads(2, [&](int rank) -> Result<std::string> {
    Communicator& root = *comms[static_cast<size_t>(rank)];
    ZPP_ASSIGN_OR_RETURN(auto group, root.Split(0));
    split.arrive_and_wait();
    std::vector<float> x(1000, 1);
    if (rank == 0) {
      Work work = group->StartAllReduce(In(x), Out(x));
      group.reset();
      ZPP_REQUIRE(work.status().code() == StatusCode::kAborted);
      ZPP_REQUIRE(root.status().code() == StatusCode::kAborted);
      return std::string();
    }
    Status status;
    while (status.ok()) status = group->AllReduce(In(x), Out(x), {.deadline = Deadline::In(20)});
    ZPP_REQUIRE(status.code() == StatusCode::kAborted);
    return std::string();
  });
  EXPECT_TRUE(AllOk(outcomes));
}

TEST(Split, ALostRankHasItsNumberInTheRoot) {
  auto comms = ConnectThreads(4);
  std::barrier split(4);
  const auto outcomes = RunThreads(4, [&](int rank) -> Result<std::string> {
    auto root = std::move(comms[static_cast<size_t>(rank)]);
    ZPP_ASSIGN_OR_RETURN(auto group, root->Split(rank < 2 ? 0 : 1, -rank));  // {1,0} and {3,2}
    split.arrive_and_wait();
    if (rank == 3) return std::string();  // goes without a word
    std::vector<float> x(1000, 1);
    Status status;
    while (status.ok()) status = group->AllReduce(In(x), Out(x), {.deadline = Deadline::In(20)});
    ZPP_REQUIRE_MSG(status.code() == StatusCode::kPeerLost && status.lost_rank() == 3,
                    status.ToString());
    return std::string();
  });
  EXPECT_TRUE(AllOk(outcomes));
}

TEST(Split, AWorldOfOne) {
  auto comm = Communicator::Create(nullptr, nullptr, Topology::Flat(1), {});
  ASSERT_TRUE(comm.ok());
  auto group = (*comm)->Split(3);
  ASSERT_TRUE(group.ok());
  EXPECT_TRUE(RunCase(**group, {.count = 77}).ok());
  EXPECT_EQ((*(*comm)->Split(-1)).get(), nullptr);
}

}  // namespace
}  // namespace zpp::test
