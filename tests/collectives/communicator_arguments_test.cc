// Every wrong argument gets one sentence, sends nothing and leaves the communicator usable.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/collectives/collective_cases.h"
#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

ConstVec In(const std::vector<float>& x) {
  return {DType::kF32, x.data(), static_cast<int64_t>(x.size())};
}
Vec Out(std::vector<float>& x) { return {DType::kF32, x.data(), static_cast<int64_t>(x.size())}; }

struct BadCall {
  std::string what;
  std::function<Status(Communicator&)> call;
  std::string sentence;
};

std::vector<BadCall> BadCalls() {
  static std::vector<float> four(4), two(2), eight(8);
  static std::vector<std::byte> bytes(8);
  static const std::vector<int64_t> short_list = {4}, negative = {5, -1}, off = {3, 2},
                                    huge = {std::numeric_limits<int64_t>::max(), 1};
  const auto with = [](const std::vector<int64_t>& shards) {
    CallOptions call;
    call.shard_elems = shards;
    return call;
  };
  const Vec none{DType::kF32, nullptr, 4};
  const Vec as_bytes{DType::kByte, bytes.data(), 4};
  const Vec as_half{DType::kF16, four.data(), 4};
  const ConstVec minus{DType::kF32, four.data(), -1};
  const ConstVec endless{DType::kF32, four.data(), std::numeric_limits<int64_t>::max()};
  const ConstVec unknown{static_cast<DType>(77), four.data(), 4};
  return {
      {"null out", [=](auto& c) { return c.AllReduce(In(four), none); }, "out is null"},
      {"types differ", [=](auto& c) { return c.AllReduce(In(four), as_half); }, "out is fp16"},
      {"sizes differ", [=](auto& c) { return c.AllReduce(In(four), Out(two)); }, "2"},
      {"negative", [=](auto& c) { return c.AllReduce(minus, Out(four)); }, "-1 elements"},
      {"overflow", [=](auto& c) { return c.AllReduce(endless, Out(four)); }, "addressed"},
      {"unknown type", [=](auto& c) { return c.AllReduce(unknown, Out(four)); }, "type"},
      {"sum of bytes",
       [=](auto& c) {
         return c.AllReduce({DType::kByte, bytes.data(), 4}, {DType::kByte, bytes.data(), 4});
       },
       "cannot be summed"},
      {"overlap",
       [=](auto& c) {
         return c.AllReduce({DType::kF32, eight.data(), 4}, {DType::kF32, eight.data() + 2, 4});
       },
       "overlap"},
      {"gather of a wrong size", [=](auto& c) { return c.AllGather(In(four), Out(four)); },
       "does not make a vector"},
      {"scatter that does not divide",
       [=](auto& c) {
         return c.ReduceScatter({DType::kF32, four.data(), 3}, {DType::kF32, two.data(), 1});
       },
       "shard_elems"},
      {"gather in the wrong place",
       [=](auto& c) {
         const int64_t elsewhere = 1;  // own places are 0 and 2
         return c.AllGather({DType::kF32, four.data() + elsewhere, 2}, Out(four));
       },
       "overlap"},
      {"all_to_all that does not divide",
       [=](auto& c) {
         return c.AllToAll({DType::kF32, four.data(), 3}, {DType::kF32, two.data(), 3});
       },
       "do not divide"},
      {"all_to_all in place", [=](auto& c) { return c.AllToAll(In(four), Out(four)); },
       "no in-place form"},
      {"root", [=](auto& c) { return c.Broadcast(Out(four), 2); }, "root is 2"},
      {"negative root", [=](auto& c) { return c.Broadcast(Out(four), -1); }, "root is -1"},
      {"too few shards",
       [=](auto& c) { return c.AllReduce(In(four), Out(four), with(short_list)); }, "1 entries"},
      {"negative shard", [=](auto& c) { return c.AllReduce(In(four), Out(four), with(negative)); },
       "-1"},
      {"shards that do not add up",
       [=](auto& c) { return c.AllReduce(In(four), Out(four), with(off)); }, "have 5 elements"},
      {"shards that overflow",
       [=](auto& c) { return c.AllReduce(In(four), Out(four), with(huge)); }, "shard_elems[0]"},
      {"own shard of another size",
       [=](auto& c) {
         static const std::vector<int64_t> shards = {3, 1};
         return c.AllGather(In(two), Out(four), with(shards));
       },
       "this rank's shard"},
      {"shards of a barrier", [=](auto& c) { return c.Barrier(with(off)); },
       "takes no shard_elems"},
      {"compressed bytes",
       [=](auto& c) {
         CallOptions call;
         call.policy = CollectivePolicy::Weights();
         return c.AllGather({DType::kByte, bytes.data(), 2}, as_bytes, call);
       },
       "cannot be compressed"},
      {"bad block",
       [=](auto& c) {
         CallOptions call;
         call.policy = CollectivePolicy{.intra = QuantSpec::Int8(100)};
         return c.AllReduce(In(four), Out(four), call);
       },
       "block"},
  };
}

TEST(Communicator, BadArgumentsGetASentenceAndHurtNothing) {
  const auto result =
      RunWorld({.topology = Topology::Flat(2)}, [](Communicator& comm) -> Result<std::string> {
        for (const BadCall& bad : BadCalls()) {
          const Status status = bad.call(comm);
          ZPP_REQUIRE_MSG(status.code() == StatusCode::kInvalidArgument,
                          bad.what + ": " + status.ToString());
          ZPP_REQUIRE_MSG(status.message().find(bad.sentence) != std::string::npos,
                          bad.what + ": " + status.message());
        }
        Work work = comm.StartBroadcast({DType::kF32, nullptr, 3}, 0);
        ZPP_REQUIRE(work.Poll());
        ZPP_REQUIRE(work.status().code() == StatusCode::kInvalidArgument);
        ZPP_REQUIRE(comm.status().ok());
        std::vector<float> x = {1, 2};
        ZPP_RETURN_IF_ERROR(comm.AllReduce(In(x), Out(x)));
        ZPP_REQUIRE(x[0] == 2 && x[1] == 4);
        return std::string();
      });
  EXPECT_TRUE(result.ok()) << result.status().message();
}

}  // namespace
}  // namespace zpp::test
