// Layouts and requests that the tests of plans run over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"
#include "topology/topology.h"

namespace zpp::test {

inline constexpr int kLayouts = 10;
// Ten shapes for any world: even, uneven, scattered, lone ranks, one to four tiers. `name` is for
// messages.
struct Layout {
  std::string name;
  Topology topology;
};
Layout MakeLayout(int which, int world);

inline constexpr CollectiveKind kAllKinds[] = {
    CollectiveKind::kAllGather, CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce,
    CollectiveKind::kAllToAll,  CollectiveKind::kBroadcast,     CollectiveKind::kBarrier};

bool Reduces(CollectiveKind kind);

// How a request differs from the plainest one.
enum class Flavor : uint8_t {
  kPlain,         // fp32, sum, equal shards
  kCompressed,    // int8 inside, int4 across, int8 gathered
  kMean16,        // fp16, mean, partial sums in fp16, unequal shards
  kWideMean16,    // bf16, mean, partial sums in fp32
  kUnequal,       // compressed mean, shards of unequal size, some of them empty
  kFlat,          // compressed, one hop over all ranks
  kOneShot,       // compressed mean in one round (all-reduce only)
  kOneShotPlain,  // fp16 sum in one round (all-reduce only)
  kNarrow,        // fp32 that travels, and is gathered, as bf16
  kOneShotNarrow  // the same in one round (all-reduce only)
};
inline constexpr Flavor kAllFlavors[] = {
    Flavor::kPlain,   Flavor::kCompressed,   Flavor::kMean16,  Flavor::kWideMean16,
    Flavor::kUnequal, Flavor::kFlat,         Flavor::kOneShot, Flavor::kOneShotPlain,
    Flavor::kNarrow,  Flavor::kOneShotNarrow};
std::string FlavorName(Flavor flavor);
// Not every flavor makes sense for every collective.
bool Applies(Flavor flavor, CollectiveKind kind);

struct Case {
  PlanRequest request;  // refers to `topology` of the caller
  Partition parts;
};
// About `elems` elements in all (all-to-all: per pair elems / world / world).
Case MakeCase(const Topology& topology, CollectiveKind kind, Flavor flavor, int64_t elems);

}  // namespace zpp::test
