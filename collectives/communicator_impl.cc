#include "collectives/internal/communicator_impl.h"

#include "collectives/exec/call_digest.h"
#include "collectives/exec/chunking.h"

namespace zpp {
namespace {

UserMemory MemoryOf(const CallArguments& args) {
  return {static_cast<const std::byte*>(args.in), static_cast<std::byte*>(args.out)};
}

int64_t GridOf(const CallArguments& args, const CallOptions& call, const EncodingChoice& choice) {
  if (call.feedback != nullptr) return kFeedbackTile_elems;
  return choice.compressed ? GridElems(choice.hop, choice.gather, args.dtype)
                           : GridElems({}, QuantSpec::None(args.dtype), args.dtype);
}

}  // namespace

Communicator::Impl::Impl(std::shared_ptr<Family> family, Group group, Topology topology,
                         const CommunicatorOptions& options)
    : options_(options),
      topology_(std::move(topology)),
      family_(std::move(family)),
      group_(std::move(group)),
      transport_(group_.transport ? group_.transport.get() : &family_->transport()),
      engine_(transport_, family_.get(),
              {.tiers = topology_.tiers(),
               .check_wire = options.check_wire,
               .timeout_s = options.timeout_s,
               .group = group_.id,
               .root_ranks = group_.root_ranks}) {
  family_->Take(group_.id);
}

Status Communicator::Impl::Run(const Result<CallArguments>& args, const CallOptions& call) {
  if (!blocking_) blocking_ = std::make_shared<Work::State>();
  ZPP_RETURN_IF_ERROR(Enqueue(args, call, blocking_));
  return engine_.Wait(*blocking_,
                      call.deadline ? *call.deadline : Deadline::In(options_.timeout_s));
}

Work Communicator::Impl::Start(const Result<CallArguments>& args, const CallOptions& call) {
  auto state = std::make_shared<Work::State>();
  const Status status = Enqueue(args, call, state);
  if (!status.ok()) return Work::Ended(status);
  return Work(std::move(state));
}

Status Communicator::Impl::Enqueue(const Result<CallArguments>& args, const CallOptions& call,
                                   const std::shared_ptr<Work::State>& state) {
  ZPP_RETURN_IF_ERROR(engine_.failure());
  ZPP_RETURN_IF_ERROR(args.status());
  ZPP_ASSIGN_OR_RETURN(state->prepared, PlanFor(*args, call));
  if (call.feedback != nullptr) {
    ZPP_RETURN_IF_ERROR(CheckFeedback(*args, *call.feedback, state->prepared->feedback_shape));
  }
  state->ended = false;
  state->status = {};
  state->user = MemoryOf(*args);
  state->noise = call.noise;
  state->stats = call.stats;
  state->last_hop_stats = call.last_hop_stats;
  state->feedback = call.feedback;
  state->deadline = call.deadline;
  engine_.Submit(state);
  return {};
}

Status Communicator::Impl::Shutdown(Deadline deadline) {
  if (!is_root()) {
    ZPP_RETURN_IF_ERROR(Run(CallArguments{}, {.deadline = deadline}));  // a barrier
    engine_.Close({StatusCode::kAborted, "the communicator was shut down"});
    return {};
  }
  ZPP_RETURN_IF_ERROR(family_->DrainAll(deadline));
  const Status status = transport_->Shutdown(deadline);
  if (family_->control() != nullptr) family_->control()->Leave();
  family_->Close(status.ok() ? Status(StatusCode::kAborted, "the communicator was shut down")
                             : status);
  return status;
}

Result<ReduceFeedback> Communicator::Impl::MakeFeedback(const CallArguments& args,
                                                        const CallOptions& call, FeedbackHops hops,
                                                        ResidualType type) const {
  const Partition parts =
      PartitionOf(args, call.shard_elems, topology_.world(), kFeedbackTile_elems);
  return ShapeOf(call, parts).Make(hops, args.kind == CollectiveKind::kAllReduce, type);
}

FeedbackShape Communicator::Impl::ShapeOf(const CallOptions& call, const Partition& parts) const {
  return {.topology = &topology_,
          .rank = transport_->rank(),
          .parts = &parts,
          .op = call.op,
          .flat = PolicyOf(call).flat};
}

Result<double> Communicator::Impl::Predict(const CallArguments& args, const CallOptions& call,
                                           const Fabric& fabric) {
  ZPP_ASSIGN_OR_RETURN(const auto prepared, PlanFor(args, call));
  const CollectivePolicy& policy = PolicyOf(call);
  const EncodingChoice choice =
      ChooseEncodings({&policy, &topology_, args.kind, args.dtype, args.elems});
  return zpp::PredictSeconds(RequestFor(args, call, choice), prepared->parts, prepared->pipeline,
                             fabric);
}

Result<std::shared_ptr<const PreparedPlan>> Communicator::Impl::PlanFor(const CallArguments& args,
                                                                        const CallOptions& call) {
  const PlanKey key{.kind = args.kind,
                    .dtype = args.dtype,
                    .op = call.op,
                    .root = args.root,
                    .elems = args.elems,
                    .policy = PolicyOf(call),
                    .feedback = call.feedback != nullptr};
  if (auto found = plans_.Find(key, call.shard_elems)) return found;
  ZPP_ASSIGN_OR_RETURN(PreparedPlan built, Build(args, call));
  auto plan = std::make_shared<const PreparedPlan>(std::move(built));
  plans_.Add(key, call.shard_elems, plan);
  return plan;
}

PlanRequest Communicator::Impl::RequestFor(const CallArguments& args, const CallOptions& call,
                                           const EncodingChoice& choice) const {
  PlanRequest request;
  request.topology = &topology_;
  request.kind = args.kind;
  request.user = QuantSpec::None(args.dtype);
  request.hop = choice.hop;
  request.gather = choice.gather;
  request.op = call.op;
  request.root = args.root;
  request.flat = choice.flat;
  request.one_shot = choice.one_shot;
  return request;
}

Result<PreparedPlan> Communicator::Impl::Build(const CallArguments& args,
                                               const CallOptions& call) const {
  const CollectivePolicy& policy = PolicyOf(call);
  const EncodingChoice choice =
      ChooseEncodings({&policy, &topology_, args.kind, args.dtype, args.elems});
  const PlanRequest request = RequestFor(args, call, choice);
  ZPP_ASSIGN_OR_RETURN(Plan plan, MakePlan(request, transport_->rank()));
  if (!choice.why.empty()) plan.reason += "; " + choice.why;
  Partition parts =
      PartitionOf(args, call.shard_elems, topology_.world(), GridOf(args, call, choice));
  const bool across = topology_.num_nodes() > 1;
  const bool single = choice.flat || args.kind == CollectiveKind::kAllToAll ||
                      args.kind == CollectiveKind::kBroadcast;
  const int chunks = ChooseChunks({.parts = &parts,
                                   .dtype = args.dtype,
                                   .compressed = choice.compressed,
                                   .parts_per_message = single ? 1 : PartsPerMessage(topology_),
                                   .chunk_bytes = options_.chunk_bytes});
  const uint64_t digest = CallDigest(request, parts, chunks);
  const uint64_t feedback_shape = call.feedback != nullptr ? ShapeOf(call, parts).Digest() : 0;
  return Prepare({.plan = std::move(plan),
                  .parts = std::move(parts),
                  .dtype = args.dtype,
                  .digest = digest,
                  .feedback_shape = feedback_shape,
                  .chunks = chunks,
                  .topology = &topology_,
                  .flat = choice.flat || choice.one_shot,
                  .keep_tail_in_flight = across && args.kind != CollectiveKind::kReduceScatter &&
                                         args.kind != CollectiveKind::kBarrier &&
                                         !choice.gather.compressed()});
}

}  // namespace zpp
