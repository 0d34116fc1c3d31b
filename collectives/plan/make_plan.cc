// From a request to plans: checks the request, makes it plain, chooses the planner and says why.
#include <optional>

#include "collectives/plan/internal/job.h"
#include "collectives/plan/internal/planners.h"
#include "collectives/plan/plan.h"

namespace zpp {
namespace {

using internal::Job;

bool Reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllReduce;
}

Status CheckEncoding(const PlanRequest& request, const QuantSpec& spec) {
  if (spec == request.user) return {};
  ZPP_RETURN_IF_ERROR(Validate(spec));
  if (!IsFloat(request.user.plain)) {
    return InvalidArgument("plan: a vector of bytes travels as it is, it cannot become " +
                           ToString(spec));
  }
  if (!spec.compressed() && !IsFloat(spec.plain)) {
    return InvalidArgument("plan: values cannot travel as bytes");
  }
  return {};
}

Status CheckHops(const PlanRequest& request) {
  const size_t tiers = static_cast<size_t>(request.topology->tiers());
  if (!IsFloat(request.user.plain)) {
    return InvalidArgument("plan: " + std::string(CollectiveName(request.kind)) +
                           " needs fp32, fp16 or bf16, not bytes");
  }
  if (request.hop.size() != tiers) {
    return InvalidArgument("plan: " + std::to_string(request.hop.size()) + " hop encodings for " +
                           std::to_string(tiers) + " tiers");
  }
  for (const QuantSpec& spec : request.hop) ZPP_RETURN_IF_ERROR(CheckEncoding(request, spec));
  return {};
}

Status CheckRequest(const PlanRequest& request) {
  if (request.topology == nullptr || request.topology->world() < 1) {
    return InvalidArgument("plan: no topology");
  }
  const int world = request.topology->world();
  if (request.user.compressed()) {
    return InvalidArgument("plan: the user's buffers cannot be " + ToString(request.user));
  }
  if (request.kind == CollectiveKind::kBarrier) return {};
  if (Reduces(request.kind)) ZPP_RETURN_IF_ERROR(CheckHops(request));
  const bool gathers = request.kind != CollectiveKind::kReduceScatter &&
                       !(request.kind == CollectiveKind::kAllReduce && request.one_shot);
  if (gathers) ZPP_RETURN_IF_ERROR(CheckEncoding(request, request.gather));
  if (request.kind == CollectiveKind::kBroadcast && (request.root < 0 || request.root >= world)) {
    return InvalidArgument("plan: root " + std::to_string(request.root) + " is not one of the " +
                           std::to_string(world) + " ranks");
  }
  if (request.kind == CollectiveKind::kAllToAll && world > 65535) {
    return InvalidArgument("plan: all_to_all serves at most 65535 ranks");
  }
  return {};
}

Plan RunPlanner(const Job& job, int rank) {
  switch (job.request.kind) {
    case CollectiveKind::kAllGather:
      return internal::PlanAllGather(job, rank);
    case CollectiveKind::kReduceScatter:
      return internal::PlanReduceScatter(job, rank);
    case CollectiveKind::kAllReduce:
      return job.request.one_shot ? internal::PlanOneShot(job, rank)
                                  : internal::PlanAllReduce(job, rank);
    case CollectiveKind::kAllToAll:
      return internal::PlanAllToAll(job, rank);
    case CollectiveKind::kBroadcast:
      return internal::PlanBroadcast(job, rank);
    case CollectiveKind::kBarrier:
      return internal::PlanBarrier(job, rank);
  }
  return {};
}

}  // namespace

namespace internal {

PreparedJob::PreparedJob(const PlanRequest& r) : request(r) {
  const bool one_tier = r.flat && r.topology->tiers() > 1;
  if (one_tier) flattened = r.topology->Flattened();
  const bool alone = r.topology->world() == 1;  // nothing travels: nothing is encoded
  job.emplace(Job{.request = request,
                  .route = one_tier ? flattened : *r.topology,
                  .place = *r.topology,
                  .hop = r.hop,
                  .gather = alone ? r.user : r.gather,
                  .average = r.op == ReduceOp::kAvg && !alone});
  if (one_tier && !r.hop.empty()) job->hop = {r.hop.back()};
  if (alone) job->hop.assign(static_cast<size_t>(job->route.tiers()), r.user);
}

}  // namespace internal

Result<Plan> MakePlan(const PlanRequest& request, int rank) {
  ZPP_RETURN_IF_ERROR(CheckRequest(request));
  if (rank < 0 || rank >= request.topology->world()) {
    return InvalidArgument("plan: rank " + std::to_string(rank) + " is not one of the " +
                           std::to_string(request.topology->world()) + " ranks");
  }
  const internal::PreparedJob prepared(request);
  Plan plan = RunPlanner(*prepared.job, rank);
  plan.reason = internal::ReasonOf(*prepared.job);
  return plan;
}

Result<std::vector<Plan>> MakeAllPlans(const PlanRequest& request) {
  ZPP_RETURN_IF_ERROR(CheckRequest(request));
  const internal::PreparedJob prepared(request);
  const std::string reason = internal::ReasonOf(*prepared.job);
  std::vector<Plan> plans;
  plans.reserve(static_cast<size_t>(request.topology->world()));
  for (int rank = 0; rank < request.topology->world(); ++rank) {
    plans.push_back(RunPlanner(*prepared.job, rank));
    plans.back().reason = reason;
  }
  return plans;
}

}  // namespace zpp
