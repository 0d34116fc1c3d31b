#include "tests/collectives/split_cases.h"

#include "collectives/connect.h"
#include "tests/collectives/collective_cases.h"
#include "tests/harness/ranks.h"

namespace zpp::test {

std::vector<std::unique_ptr<Communicator>> ConnectThreads(int world) {
  ConnectOptions options;
  options.topology = Topology::Flat(world);
  auto comms = ConnectInProcess(world, options);
  EXPECT_TRUE(comms.ok()) << comms.status().ToString();
  return std::move(comms).value();
}

Topology MegatronTopology() { return *Topology::EvenNodes(8, 2); }

Result<std::string> RunMegatron(Communicator& comm) {
  const int rank = comm.rank(), tp = rank % 2, pp = rank / 2 % 2, dp = rank / 4;
  ZPP_ASSIGN_OR_RETURN(auto tensor, comm.Split(pp * 2 + dp));
  ZPP_ASSIGN_OR_RETURN(auto pipeline, comm.Split(tp * 2 + dp));
  ZPP_ASSIGN_OR_RETURN(auto data, comm.Split(tp * 2 + pp));
  Communicator* const groups[] = {tensor.get(), pipeline.get(), data.get(), &comm};
  ZPP_REQUIRE(tensor->rank() == tp && pipeline->rank() == pp && data->rank() == dp);
  ZPP_REQUIRE(tensor->topology().num_nodes() == 1 && data->topology().num_nodes() == 2);

  const CollectivePolicy coded{
      .intra = QuantSpec::Int8(), .inter = QuantSpec::Int4(Code::kSqrt), .min_compress_bytes = 0};
  std::string digests;
  for (int round = 0; round < 3; ++round) {
    // The same shape on all: only the group tells the messages apart.
    std::vector<std::vector<float>> x(4, std::vector<float>(30001, static_cast<float>(rank + 1)));
    std::vector<Work> works;
    for (size_t i = 0; i < 4; ++i) works.push_back(groups[i]->StartAllReduce(In(x[i]), Out(x[i])));
    // Blocking calls on one group while the works of all others are on their way.
    Communicator& blocking = *groups[round];
    std::vector<float> whole(static_cast<size_t>(1001 * blocking.world()), -1);
    std::vector<float> shard(1001, static_cast<float>(rank));
    ZPP_RETURN_IF_ERROR(blocking.AllGather(In(shard), Out(whole)));
    ZPP_REQUIRE(whole[static_cast<size_t>(1001 * blocking.rank())] == static_cast<float>(rank));
    const int sums[] = {2 * rank + 3 - 2 * tp, 2 * rank + 4 - 4 * pp, 2 * rank + 6 - 8 * dp, 36};
    for (size_t i = 0; i < works.size(); ++i) {
      ZPP_RETURN_IF_ERROR(works[i].Wait(Deadline::In(60)));
      ZPP_REQUIRE_MSG(x[i] == std::vector<float>(30001, static_cast<float>(sums[i])),
                      std::to_string(i));
    }
  }
  for (const CollectivePolicy& policy : {CollectivePolicy{}, coded}) {
    for (auto kind :
         {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce,
          CollectiveKind::kAllToAll, CollectiveKind::kBroadcast, CollectiveKind::kBarrier}) {
      CollectiveCase c{.kind = kind, .count = 7001, .policy = policy};
      if (kind == CollectiveKind::kBarrier) c.dtype = DType::kByte;
      for (Communicator* group : groups) {
        ZPP_ASSIGN_OR_RETURN(const std::string digest, RunCase(*group, c));
        digests += digest + " ";
      }
    }
  }
  return digests;
}

}  // namespace zpp::test
