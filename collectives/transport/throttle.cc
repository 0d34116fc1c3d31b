#include "collectives/transport/throttle.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "collectives/transport/internal/holding_transport.h"

namespace zpp {
namespace {

// This rank's share of the link of its domain.
struct Link {
  double bytes_per_s = 0;                       // 0: free
  HoldingTransport::Clock::time_point free_at;  // when the last byte that was put in has left
};

class ThrottledTransport final : public HoldingTransport {
 public:
  ThrottledTransport(std::unique_ptr<Transport> inner, const Topology& topology,
                     const std::vector<double>& tier_bytes_per_s)
      : HoldingTransport(std::move(inner)), links_(tier_bytes_per_s.size()) {
    for (int peer = 0; peer < world(); ++peer) {
      tier_of_.push_back(peer == rank() ? -1 : topology.TierOf(rank(), peer));
    }
    for (size_t tier = 0; tier < links_.size(); ++tier) {
      const auto& domain = topology.At(static_cast<int>(tier), rank());
      links_[tier].bytes_per_s = tier_bytes_per_s[tier] / static_cast<double>(domain.ranks.size());
    }
  }

  TransportInfo info() const override {
    TransportInfo info = HoldingTransport::info();
    info.name += ", throttled";
    return info;
  }

 private:
  Fate Decide(const SendOp& op, Clock::time_point now) override {
    const auto tier = static_cast<size_t>(tier_of_[static_cast<size_t>(op.peer)]);
    if (tier >= links_.size() || links_[tier].bytes_per_s == 0)
      return {.release = now, .data = op.data};
    Link& link = links_[tier];
    const std::chrono::duration<double> time_s(static_cast<double>(op.data.size()) /
                                               link.bytes_per_s);
    link.free_at =
        std::max(link.free_at, now) + std::chrono::duration_cast<Clock::duration>(time_s);
    return {.release = link.free_at, .data = op.data};
  }

  std::vector<int> tier_of_;  // per peer
  std::vector<Link> links_;   // per tier
};

}  // namespace

Result<std::unique_ptr<Transport>> MakeThrottled(std::unique_ptr<Transport> inner,
                                                 const Topology& topology,
                                                 const std::vector<double>& tier_bytes_per_s) {
  if (topology.world() != inner->world()) {
    return InvalidArgument("throttle: the topology has " + std::to_string(topology.world()) +
                           " ranks, the transport " + std::to_string(inner->world()));
  }
  if (tier_bytes_per_s.size() > static_cast<size_t>(topology.tiers())) {
    return InvalidArgument("throttle: " + std::to_string(tier_bytes_per_s.size()) + " rates for " +
                           std::to_string(topology.tiers()) + " tiers");
  }
  for (double rate : tier_bytes_per_s) {
    if (!std::isfinite(rate) || rate < 0) {
      return InvalidArgument("throttle: " + std::to_string(rate) + " bytes/s is no rate");
    }
  }
  return std::unique_ptr<Transport>(
      std::make_unique<ThrottledTransport>(std::move(inner), topology, tier_bytes_per_s));
}

}  // namespace zpp
