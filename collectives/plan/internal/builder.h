// Puts a plan together, stage by stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"
#include "topology/topology.h"

namespace zpp::internal {

// A request that has been checked and made plain: `route` is what the planner walks (one tier when
// flat), `hop` has one entry per tier of it; `place` says which tier a message crosses.
struct Job {
  const PlanRequest& request;
  const Topology& route;
  const Topology& place;
  std::vector<QuantSpec> hop;
  QuantSpec gather;
  bool average = false;

  int world() const { return route.world(); }
};

class Builder {
 public:
  Builder(const Job& job, int rank);

  // A list of parts; slots name ranges of it.
  PartList List(const std::vector<PartId>& ids);
  uint32_t AddSlot(Place place, const QuantSpec& spec, PartList parts);
  // out = in_0 + in_1 + ...
  void Combine(const Span& out, const std::vector<Span>& in, bool average = false);
  void Send(int peer, const Span& data) { plan.sends.push_back({peer, TierOf(peer), data}); }
  void Receive(int peer, const Span& data) { plan.recvs.push_back({peer, TierOf(peer), data}); }
  // Combine() calls from here to EndStage() run while the exchange travels.
  void StartExchange();
  void EndStage();

  const QuantSpec& SpecOf(const Span& span) const { return plan.slots[span.slot].spec; }

  const Job& job;
  const Topology& topology;  // = job.route
  const int rank;
  Plan plan;

 private:
  uint8_t TierOf(int peer) const { return static_cast<uint8_t>(job.place.TierOf(rank, peer)); }

  bool exchange_started_ = false;
  uint32_t before_end_ = 0;
};

}  // namespace zpp::internal
