// Internal: what stands behind a Communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/arguments.h"
#include "collectives/communicator.h"
#include "collectives/encoding_choice.h"
#include "collectives/exec/engine.h"
#include "collectives/exec/family.h"
#include "collectives/exec/plan_cache.h"

namespace zpp {

class Communicator::Impl {
 public:
  // A communicator's place in its family.
  struct Group {
    int id = 0;
    std::vector<int32_t> root_ranks;       // empty: the root itself
    std::unique_ptr<Transport> transport;  // null: the family's
  };
  Impl(std::shared_ptr<Family> family, Group group, Topology topology,
       const CommunicatorOptions& options);
  ~Impl() { family_->Release(group_.id); }

  const CommunicatorOptions& options() const { return options_; }
  const Topology& topology() const { return topology_; }
  Transport& transport() { return *transport_; }
  Engine& engine() { return engine_; }
  Caller CallerOf(const CallOptions& call) const {
    return {transport_->rank(), topology_.world(), call};
  }

  // A call that blocks. The one state is used again and again: a call of a known shape allocates
  // nothing.
  Status Run(const Result<CallArguments>& args, const CallOptions& call);
  Work Start(const Result<CallArguments>& args, const CallOptions& call);

  Result<std::shared_ptr<const PreparedPlan>> PlanFor(const CallArguments& args,
                                                      const CallOptions& call);
  Result<double> Predict(const CallArguments& args, const CallOptions& call, const Fabric& fabric);
  Result<ReduceFeedback> MakeFeedback(const CallArguments& args, const CallOptions& call,
                                      FeedbackHops hops, ResidualType type) const;
  // Null for a negative color.
  Result<std::unique_ptr<Impl>> Split(int color, int key);
  Status Shutdown(Deadline deadline);

 private:
  struct Claim;  // what a rank says in a Split

  bool is_root() const { return group_.root_ranks.empty(); }
  const CollectivePolicy& PolicyOf(const CallOptions& call) const {
    return call.policy ? *call.policy : options_.policy;
  }
  Status Enqueue(const Result<CallArguments>& args, const CallOptions& call,
                 const std::shared_ptr<Work::State>& state);
  FeedbackShape ShapeOf(const CallOptions& call, const Partition& parts) const;
  PlanRequest RequestFor(const CallArguments& args, const CallOptions& call,
                         const EncodingChoice& choice) const;
  Result<PreparedPlan> Build(const CallArguments& args, const CallOptions& call) const;
  Result<std::vector<Claim>> GatherClaims(int color, int key);

  const CommunicatorOptions options_;
  const Topology topology_;
  const std::shared_ptr<Family> family_;
  const Group group_;
  Transport* const transport_;  // the group's or the family's
  PlanCache plans_;
  Engine engine_;  // after the transport: its wire memory goes first
  std::shared_ptr<Work::State> blocking_;
};

}  // namespace zpp
