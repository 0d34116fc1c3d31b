// The same bits whatever the chunk size, the number of codec threads and the timing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/collectives/collective_cases.h"
#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

constexpr int64_t kElems = 100003;
constexpr int kRuns = 100;

// Values without any structure that rounding would respect.
std::vector<float> Noise(int rank) {
  uint64_t state = 88172645463325252u + static_cast<uint64_t>(rank) * 1000003u;
  std::vector<float> x(kElems);
  for (float& v : x) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const double unit = static_cast<double>(state >> 11) * 0x1p-53;
    v = static_cast<float>((unit - 0.5) * std::exp2(static_cast<double>(state % 9)));
  }
  return x;
}

std::string BitsOf(const std::vector<float>& x) {
  uint64_t hash = 1469598103934665603u;
  for (float v : x) {
    uint32_t bits = 0;
    std::memcpy(&bits, &v, 4);
    hash = (hash ^ bits) * 1099511628211u;
  }
  return std::to_string(hash);
}

struct Setting {
  CollectivePolicy policy;
  NoiseKey noise = {};
};

std::vector<Setting> Settings() {
  QuantSpec dithered = QuantSpec::Int4(Code::kLinear);
  dithered.rounding = Rounding::kStochastic;
  return {{{}},
          {{.wide_partial_sums = true}},
          {{.intra = QuantSpec::Int8(), .inter = QuantSpec::Int4(Code::kSqrt)}},
          {{.intra = QuantSpec::Int8(), .inter = QuantSpec::Int8(), .flat = true}},
          {{.intra = dithered, .inter = dithered}, {.seed = 7, .step = 3}}};
}

Result<std::string> OneRun(Communicator& comm) {
  const std::vector<float> in = Noise(comm.rank());
  std::vector<int64_t> shards(static_cast<size_t>(comm.world()), kElems / comm.world() / 128 * 128);
  shards.back() += kElems - shards[0] * comm.world();
  std::string bits;
  for (const Setting& setting : Settings()) {
    CallOptions call;
    call.policy = setting.policy;
    call.policy->min_compress_bytes = 0;
    call.noise = setting.noise;
    std::vector<float> all(kElems, NAN);
    ZPP_RETURN_IF_ERROR(
        comm.AllReduce({DType::kF32, in.data(), kElems}, {DType::kF32, all.data(), kElems}, call));
    bits += BitsOf(all) + " ";
    call.shard_elems = shards;
    const int64_t own = shards[static_cast<size_t>(comm.rank())];
    std::vector<float> shard(static_cast<size_t>(own), NAN);
    ZPP_RETURN_IF_ERROR(comm.ReduceScatter({DType::kF32, in.data(), kElems},
                                           {DType::kF32, shard.data(), own}, call));
    ZPP_RETURN_IF_ERROR(
        comm.AllGather({DType::kF32, shard.data(), own}, {DType::kF32, all.data(), kElems}, call));
    bits += BitsOf(all) + " ";  // every rank sees every shard
  }
  return bits;
}

class Determinism : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Layouts, Determinism, testing::Values(2, 4, 5));

TEST_P(Determinism, ChunksThreadsAndTimingChangeNoBit) {
  const Topology topology = Layouts()[static_cast<size_t>(GetParam())].second;
  std::string expected;
  for (int run = 0; run < kRuns; ++run) {
    WorldOptions options{.topology = topology};
    // From one block to the whole part, spread over the runs; 0 is the default.
    constexpr int64_t kChunks[] = {0, 1024, 4096, 20000, 65536, 200000, int64_t{1} << 30};
    options.communicator.chunk_bytes = kChunks[run % 7];
    options.communicator.codec_threads = 1 + run / 7 % 2;
    if (run % 3 != 0) options.adversary_seed = static_cast<uint64_t>(run);
    const auto bits = RunWorld(options, OneRun);
    ASSERT_TRUE(bits.ok()) << "run " << run << ": " << bits.status().message();
    if (expected.empty()) expected = (*bits)[0];
    for (const std::string& of_rank : *bits) ASSERT_EQ(of_rank, expected) << "run " << run;
  }
}

// Cutting the front off moves every element to another owner, or at least to another place of its
// part. Stochastic rounding must not notice: neither which rank holds a domain's contribution nor
// which tiers of the topology join anything.
TEST(Determinism, DitheredBitsDoNotDependOnWhoOwnsAPart) {
  constexpr int64_t kCut = 9 * 2048;
  auto layouts = Layouts();
  for (const std::vector<int>& fanout :
       {std::vector<int>{1, 2, 2}, {2, 1, 2}, {1, 3}, {1, 2, 1, 2}}) {
    layouts.emplace_back("trivial tiers", *Topology::Regular(fanout));
  }
  QuantSpec dithered = QuantSpec::Int4(Code::kLinear);
  dithered.rounding = Rounding::kStochastic;
  for (const auto& [name, topology] : layouts) {
    for (bool flat : {false, true}) {
      const auto body = [&](Communicator& comm) -> Result<std::string> {
        std::vector<float> whole = Noise(comm.rank());
        std::vector<float> rest(whole.begin() + kCut, whole.end());
        CallOptions call;
        call.policy = {.intra = dithered, .inter = dithered, .flat = flat};
        call.policy->min_compress_bytes = 0;
        call.noise = {.seed = 7, .step = 3};
        ZPP_RETURN_IF_ERROR(comm.AllReduce({DType::kF32, whole.data(), kElems},
                                           {DType::kF32, whole.data(), kElems}, call));
        call.noise.first_elem = kCut;
        ZPP_RETURN_IF_ERROR(comm.AllReduce({DType::kF32, rest.data(), kElems - kCut},
                                           {DType::kF32, rest.data(), kElems - kCut}, call));
        for (size_t i = 0; i < rest.size(); ++i) {
          ZPP_REQUIRE_MSG(std::memcmp(&rest[i], &whole[i + kCut], 4) == 0, std::to_string(i));
        }
        return std::string();
      };
      const auto result = RunWorld({.topology = topology}, body);
      EXPECT_TRUE(result.ok()) << name << (flat ? ", flat" : "") << ": "
                               << result.status().message();
    }
  }
}

// Without compression and with a hop per tier, cutting a vector into several calls changes nothing
// either.
TEST(Determinism, ASmallCallSumsInTheSameOrderAsALargeOne) {
  for (const auto& [name, topology] : Layouts()) {
    const auto result =
        RunWorld({.topology = topology}, [](Communicator& comm) -> Result<std::string> {
          std::vector<float> whole = Noise(comm.rank());
          std::vector<float> pieces = whole;
          ZPP_RETURN_IF_ERROR(comm.AllReduce({DType::kF32, whole.data(), kElems},
                                             {DType::kF32, whole.data(), kElems}));
          for (int64_t begin = 0, size = 1; begin < 4000; begin += size, size = size % 37 + 5) {
            float* at = pieces.data() + begin;
            ZPP_RETURN_IF_ERROR(comm.AllReduce({DType::kF32, at, size}, {DType::kF32, at, size}));
          }
          for (size_t i = 0; i < 4000; ++i) {
            ZPP_REQUIRE_MSG(std::memcmp(&whole[i], &pieces[i], 4) == 0, std::to_string(i));
          }
          return std::string();
        });
    EXPECT_TRUE(result.ok()) << name << ": " << result.status().message();
  }
}

}  // namespace
}  // namespace zpp::test
