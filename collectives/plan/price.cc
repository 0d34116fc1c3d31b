// Adds up the loads of all ranks per port, then plays the executor's events on them.
#include <algorithm>

#include "collectives/plan/simulator.h"

namespace zpp {
namespace {

constexpr int64_t kMostPlans = 512;

// A stage as the whole world sees it: the busiest ports, the slowest rank.
struct StageCost {
  std::vector<double> port_bytes;  // per tier
  std::vector<bool> used;          // whether anything, even a signal, crosses the tier
  double before_s = 0, during_s = 0, start_s = 0;
};

// Ranks in the order of their classes: loads[class of rank][stage].
using ClassLoads = std::vector<std::vector<StageLoad>>;

int64_t CountOf(const std::vector<int32_t>& classes) {
  return classes.empty() ? 0 : int64_t{*std::max_element(classes.begin(), classes.end())} + 1;
}

bool PartsAreEqual(const Partition& parts) {
  if (parts.parts() == 0) return true;
  int64_t least = parts.Elems(0);
  for (int64_t p = 1; p + 1 < parts.parts() && parts.parts() < 1 << 20; ++p) {
    least = std::min(least, parts.Elems(static_cast<PartId>(p)));
  }
  return parts.MaxPartElems() - least <= parts.grid_elems();
}

// Keeps at most kMostPlans classes: the others fold into the one before them.
void Thin(std::vector<int32_t>* classes) {
  const int64_t step = (CountOf(*classes) + kMostPlans - 1) / kMostPlans;
  for (int32_t& c : *classes) c = static_cast<int32_t>(c / step);
}

Result<ClassLoads> LoadsPerClass(const PlanRequest& request, const Partition& parts,
                                 const Fabric& fabric, int chunks,
                                 const std::vector<int32_t>& classes) {
  ClassLoads loads(static_cast<size_t>(CountOf(classes)));
  for (int rank = 0; rank < static_cast<int>(classes.size()); ++rank) {
    std::vector<StageLoad>& mine = loads[static_cast<size_t>(classes[static_cast<size_t>(rank)])];
    if (!mine.empty()) continue;
    ZPP_ASSIGN_OR_RETURN(const Plan plan, MakePlan(request, rank));
    mine = LoadsOf(plan, parts, fabric, chunks);
  }
  return loads;
}

class PortSums {
 public:
  PortSums(const Topology& topology, const std::vector<int32_t>& classes, const ClassLoads& loads)
      : topology_(topology), classes_(classes), loads_(loads) {}

  StageCost Cost(size_t stage, const Fabric& fabric) const {
    StageCost cost;
    cost.port_bytes.assign(static_cast<size_t>(topology_.tiers()), 0);
    cost.used.assign(static_cast<size_t>(topology_.tiers()), false);
    for (const std::vector<StageLoad>& of_class : loads_) {
      const StageLoad& load = of_class[stage];
      cost.before_s = std::max(cost.before_s, load.before_s);
      cost.during_s = std::max(cost.during_s, load.during_s);
      int messages = 0;
      for (size_t t = 0; t < load.messages.size(); ++t) {
        messages += load.messages[t];
        if (load.messages[t] > 0) cost.used[t] = true;
      }
      if (messages == 0) continue;
      cost.start_s = std::max(cost.start_s, fabric.start_s + messages * fabric.message_s);
    }
    for (int t = 0; t < topology_.tiers(); ++t) {
      cost.port_bytes[static_cast<size_t>(t)] = Busiest(stage, t);
    }
    return cost;
  }

 private:
  // What leaves a rack leaves its nodes too; tier 0 is a link of its own.
  double Busiest(size_t stage, int tier) const {
    const size_t domains = static_cast<size_t>(topology_.NumDomains(tier));
    std::vector<double> out(domains, 0), in(domains, 0);
    const size_t outermost = static_cast<size_t>(tier == 0 ? 1 : topology_.tiers());
    for (int rank = 0; rank < topology_.world(); ++rank) {
      const size_t port = static_cast<size_t>(topology_.DomainId(tier, rank));
      const StageLoad& load =
          loads_[static_cast<size_t>(classes_[static_cast<size_t>(rank)])][stage];
      for (size_t u = static_cast<size_t>(tier); u < outermost; ++u) {
        out[port] += load.out_bytes[u];
        in[port] += load.in_bytes[u];
      }
    }
    return std::max(*std::max_element(out.begin(), out.end()),
                    *std::max_element(in.begin(), in.end()));
  }

  const Topology& topology_;
  const std::vector<int32_t>& classes_;
  const ClassLoads& loads_;
};

// One clock for all ranks, one queue per tier.
class Clock {
 public:
  Clock(const std::vector<StageCost>& costs, const Fabric& fabric, int chunks)
      : costs_(costs), fabric_(fabric), free_s_(fabric.tier.size(), 0) {
    price_.link_s.assign(fabric.tier.size(), 0);
    price_.port_bytes.assign(fabric.tier.size(), 0);
    done_s_.assign(static_cast<size_t>(chunks) * costs.size(), 0);
  }

  void Run(const Event& event) {
    const StageCost& cost = costs_[static_cast<size_t>(event.stage)];
    double& done_s = done_s_[static_cast<size_t>(event.chunk) * costs_.size() +
                             static_cast<size_t>(event.stage)];
    switch (event.kind) {
      case Event::kBefore:
        return Compute(cost.before_s);
      case Event::kDuring:
        return Compute(cost.during_s);
      case Event::kStart:
        done_s = Start(cost);
        return;
      case Event::kWait:
        price_.seconds = std::max(price_.seconds, done_s);
        return;
    }
  }
  Price Result() const { return price_; }

 private:
  void Compute(double seconds) {
    price_.seconds += seconds;
    price_.codec_s += seconds;
  }
  // When the exchange will be over.
  double Start(const StageCost& cost) {
    price_.seconds += cost.start_s;
    double done_s = price_.seconds;
    for (size_t t = 0; t < free_s_.size(); ++t) {
      if (!cost.used[t]) continue;
      const double takes_s = cost.port_bytes[t] / fabric_.tier[t].bytes_per_s;
      free_s_[t] = std::max(price_.seconds, free_s_[t]) + takes_s;
      done_s = std::max(done_s, free_s_[t] + fabric_.tier[t].latency_s);
      price_.link_s[t] += takes_s;
      price_.port_bytes[t] += cost.port_bytes[t];
    }
    return done_s;
  }

  const std::vector<StageCost>& costs_;
  const Fabric& fabric_;
  std::vector<double> free_s_;  // per tier: when its busiest port is free again
  std::vector<double> done_s_;  // per chunk and stage
  Price price_;
};

Status CheckFabric(const Fabric& fabric, const PlanRequest& request, const Pipeline& pipeline) {
  if (request.topology == nullptr || request.topology->world() < 1) {
    return InvalidArgument("price: no topology");
  }
  if (fabric.tier.size() != static_cast<size_t>(request.topology->tiers())) {
    return InvalidArgument("price: " + std::to_string(fabric.tier.size()) + " links for " +
                           std::to_string(request.topology->tiers()) + " tiers");
  }
  for (const LinkModel& link : fabric.tier) {
    if (!(link.bytes_per_s > 0) || !(link.latency_s >= 0)) {
      return InvalidArgument("price: a link without a speed");
    }
  }
  if (!(fabric.codec_bytes_per_s > 0)) return InvalidArgument("price: a codec without a speed");
  if (pipeline.chunks < 1 || pipeline.depth < 1 || pipeline.lanes < 1) {
    return InvalidArgument("price: chunks, depth and lanes begin at 1");
  }
  return {};
}

// The parts that the collective moves; the barrier moves none, whatever it is given.
Status CheckParts(const PlanRequest& request, const Partition& parts) {
  const int64_t world = request.topology->world();
  int64_t expected = world;
  if (request.kind == CollectiveKind::kAllToAll) expected = world * world;
  if (request.kind == CollectiveKind::kBroadcast) expected = 1;
  if (request.kind == CollectiveKind::kBarrier || parts.parts() == expected) return {};
  return InvalidArgument("price: " + std::string(CollectiveName(request.kind)) + " over " +
                         std::to_string(world) + " ranks has " + std::to_string(expected) +
                         " parts, not " + std::to_string(parts.parts()));
}

}  // namespace

Fabric FabricOf(const Topology& topology) {
  Fabric fabric;
  fabric.tier = topology.links();
  fabric.tier.resize(static_cast<size_t>(topology.tiers()));
  for (size_t t = 0; t < fabric.tier.size(); ++t) {
    if (fabric.tier[t].bytes_per_s > 0) continue;
    const bool inside = t == 0;
    fabric.tier[t] = {.latency_s = inside ? 1e-6 : 30e-6, .bytes_per_s = inside ? 8e9 : 1.25e9};
  }
  return fabric;
}

Result<Price> PriceOf(const PlanRequest& request, const Partition& parts, const Pipeline& pipeline,
                      const Fabric& fabric) {
  ZPP_RETURN_IF_ERROR(CheckFabric(fabric, request, pipeline));
  ZPP_RETURN_IF_ERROR(CheckParts(request, parts));
  const Topology& topology = *request.topology;
  std::vector<int32_t> classes = SymmetryClasses(request);
  const bool small_plans =
      request.kind == CollectiveKind::kBroadcast || request.kind == CollectiveKind::kBarrier;
  if (!small_plans && !PartsAreEqual(parts)) {
    for (size_t r = 0; r < classes.size(); ++r) classes[r] = static_cast<int32_t>(r);
  }
  if (!small_plans) Thin(&classes);
  ZPP_ASSIGN_OR_RETURN(const ClassLoads loads,
                       LoadsPerClass(request, parts, fabric, pipeline.chunks, classes));
  const PortSums sums(topology, classes, loads);
  std::vector<StageCost> costs;
  for (size_t k = 0; k < loads[0].size(); ++k) costs.push_back(sums.Cost(k, fabric));
  Clock clock(costs, fabric, pipeline.chunks);
  for (const Event& event : Events(static_cast<int>(costs.size()), pipeline)) clock.Run(event);
  Price price = clock.Result();
  price.plans_built = static_cast<int64_t>(loads.size());
  return price;
}

Result<double> PredictSeconds(const PlanRequest& request, const Partition& parts,
                              const Pipeline& pipeline, const Fabric& fabric) {
  ZPP_ASSIGN_OR_RETURN(const Price price, PriceOf(request, parts, pipeline, fabric));
  return price.seconds;
}

}  // namespace zpp
