// Any text either is refused with one sentence or gives a topology that survives a round trip.
#include <cstdint>
#include <string_view>

#include "tests/fuzz/check.h"
#include "topology/topology.h"

namespace zpp {
namespace {

void CheckTopology(const Topology& topology) {
  ZPP_FUZZ_CHECK(topology.world() >= 1 && topology.world() <= Topology::kMaxWorld);
  ZPP_FUZZ_CHECK(topology.tiers() >= 1 && topology.tiers() <= Topology::kMaxTiers);
  const Result<Topology> again = Topology::FromJson(topology.ToJson());
  ZPP_FUZZ_CHECK(again.ok());
  ZPP_FUZZ_CHECK(*again == topology);
  ZPP_FUZZ_CHECK(again->Fingerprint() == topology.Fingerprint());
  const int last = topology.world() - 1;
  ZPP_FUZZ_CHECK(topology.NodeGroup(last).back() <= last);
  ZPP_FUZZ_CHECK(static_cast<int>(topology.RailGroup(last).size()) == topology.num_nodes());
  if (last > 0) ZPP_FUZZ_CHECK(topology.TierOf(0, last) < topology.tiers());
  if (last < 1000) ZPP_FUZZ_CHECK(!topology.ToText().empty());
}

}  // namespace
}  // namespace zpp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const zpp::Result<zpp::Topology> topology = zpp::Topology::FromJson(text);
  if (topology.ok()) {
    zpp::CheckTopology(*topology);
  } else {
    zpp::CheckSentence(topology.status());
  }
  return 0;
}
