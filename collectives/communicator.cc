#include "collectives/communicator.h"

#include <cmath>
#include <utility>

#include "collectives/arguments.h"
#include "collectives/encoding_choice.h"
#include "collectives/exec/chunking.h"
#include "collectives/exec/engine.h"
#include "collectives/exec/plan_cache.h"
#include "collectives/transport/in_process.h"

namespace zpp {
namespace {

Status CheckOptions(const CommunicatorOptions& options) {
  ZPP_RETURN_IF_ERROR(Validate(options.policy));
  const auto refuse = [](const std::string& what) {
    return InvalidArgument("communicator: " + what);
  };
  if (!(options.timeout_s > 0)) {
    return refuse("timeout_s is " + std::to_string(options.timeout_s) +
                  "; expected a positive time");
  }
  if (options.chunk_bytes < 0) {
    return refuse("chunk_bytes is " + std::to_string(options.chunk_bytes));
  }
  if (options.codec_threads < 1 || options.codec_threads > kMaxCodecThreads) {
    return refuse("codec_threads is " + std::to_string(options.codec_threads) + "; expected 1 to " +
                  std::to_string(kMaxCodecThreads));
  }
  return {};
}

UserMemory MemoryOf(const CallArguments& args) {
  return {static_cast<const std::byte*>(args.in), static_cast<std::byte*>(args.out)};
}

}  // namespace

class Communicator::Impl {
 public:
  Impl(std::unique_ptr<Transport> transport, std::shared_ptr<ControlPlane> control,
       Topology topology, const CommunicatorOptions& options)
      : options_(options),
        topology_(std::move(topology)),
        control_(std::move(control)),
        transport_(std::move(transport)),
        engine_(transport_.get(), control_.get(),
                {.tiers = topology_.tiers(),
                 .codec_threads = options.codec_threads,
                 .check_wire = options.check_wire,
                 .timeout_s = options.timeout_s}) {}

  const CommunicatorOptions& options() const { return options_; }
  const Topology& topology() const { return topology_; }
  Transport& transport() { return *transport_; }
  Engine& engine() { return engine_; }
  Caller CallerOf(const CallOptions& call) const {
    return {transport_->rank(), topology_.world(), call};
  }

  // A call that blocks. The one state is used again and again: a call of a known shape allocates
  // nothing.
  Status Run(const Result<CallArguments>& args, const CallOptions& call) {
    if (!blocking_) blocking_ = std::make_shared<Work::State>();
    ZPP_RETURN_IF_ERROR(Enqueue(args, call, blocking_));
    return engine_.Wait(*blocking_,
                        call.deadline ? *call.deadline : Deadline::In(options_.timeout_s));
  }

  Work Start(const Result<CallArguments>& args, const CallOptions& call) {
    auto state = std::make_shared<Work::State>();
    const Status status = Enqueue(args, call, state);
    if (!status.ok()) return Work::Ended(status);
    return Work(std::move(state));
  }

  Result<std::shared_ptr<const PreparedPlan>> PlanFor(const CallArguments& args,
                                                      const CallOptions& call);

  Result<double> Predict(const CallArguments& args, const CallOptions& call, const Fabric& fabric) {
    ZPP_ASSIGN_OR_RETURN(const auto prepared, PlanFor(args, call));
    const CollectivePolicy& policy = call.policy ? *call.policy : options_.policy;
    const EncodingChoice choice =
        ChooseEncodings({&policy, &topology_, args.kind, args.dtype, args.elems});
    return zpp::PredictSeconds(RequestFor(args, call, choice), prepared->parts, prepared->pipeline,
                               fabric);
  }

  Result<ReduceFeedback> MakeFeedback(const CallArguments& args, const CallOptions& call,
                                      FeedbackHops hops, ResidualType type) const {
    const Partition parts =
        PartitionOf(args, call.shard_elems, topology_.world(), kFeedbackTile_elems);
    return ShapeOf(call, parts).Make(hops, args.kind == CollectiveKind::kAllReduce, type);
  }

  Status Shutdown(Deadline deadline) {
    ZPP_RETURN_IF_ERROR(engine_.Drain(deadline));
    const Status status = transport_->Shutdown(deadline);
    if (control_) control_->Leave();
    engine_.Close(status.ok() ? Status(StatusCode::kAborted, "the communicator was shut down")
                              : status);
    return status;
  }

 private:
  Status Enqueue(const Result<CallArguments>& args, const CallOptions& call,
                 const std::shared_ptr<Work::State>& state) {
    ZPP_RETURN_IF_ERROR(engine_.failure());
    ZPP_RETURN_IF_ERROR(args.status());
    ZPP_ASSIGN_OR_RETURN(state->prepared, PlanFor(*args, call));
    state->ended = false;
    state->status = {};
    state->user = MemoryOf(*args);
    state->noise = call.noise;
    state->stats = call.stats;
    state->deadline = call.deadline;
    engine_.Submit(state);
    return {};
  }

  FeedbackShape ShapeOf(const CallOptions& call, const Partition& parts) const {
    const CollectivePolicy& policy = call.policy ? *call.policy : options_.policy;
    return {.topology = &topology_,
            .rank = transport_->rank(),
            .parts = &parts,
            .op = call.op,
            .flat = policy.flat};
  }

  PlanRequest RequestFor(const CallArguments& args, const CallOptions& call,
                         const EncodingChoice& choice) const;
  Result<PreparedPlan> Build(const CallArguments& args, const CallOptions& call,
                             const CollectivePolicy& policy) const;

  CommunicatorOptions options_;
  Topology topology_;
  std::shared_ptr<ControlPlane> control_;
  std::unique_ptr<Transport> transport_;
  PlanCache plans_;
  Engine engine_;  // after the transport: its wire memory goes first
  std::shared_ptr<Work::State> blocking_;
};

Result<std::shared_ptr<const PreparedPlan>> Communicator::Impl::PlanFor(const CallArguments& args,
                                                                        const CallOptions& call) {
  const CollectivePolicy& policy = call.policy ? *call.policy : options_.policy;
  const PlanKey key{args.kind, args.dtype, call.op, args.root, args.elems, policy};
  if (auto found = plans_.Find(key, call.shard_elems)) return found;
  ZPP_ASSIGN_OR_RETURN(PreparedPlan built, Build(args, call, policy));
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

Result<PreparedPlan> Communicator::Impl::Build(const CallArguments& args, const CallOptions& call,
                                               const CollectivePolicy& policy) const {
  const EncodingChoice choice =
      ChooseEncodings({&policy, &topology_, args.kind, args.dtype, args.elems});
  const PlanRequest request = RequestFor(args, call, choice);
  ZPP_ASSIGN_OR_RETURN(Plan plan, MakePlan(request, transport_->rank()));
  if (!choice.why.empty()) plan.reason += "; " + choice.why;
  const int64_t grid_elems = choice.compressed ? GridElems(choice.hop, choice.gather, args.dtype)
                                               : GridElems({}, request.user, args.dtype);
  Partition parts = PartitionOf(args, call.shard_elems, topology_.world(), grid_elems);
  const int chunks =
      ChooseChunks({.parts = &parts,
                    .dtype = args.dtype,
                    .compressed = choice.compressed,
                    .across_nodes = topology_.num_nodes() > 1,
                    .parts_per_message = choice.flat || args.kind == CollectiveKind::kAllToAll ||
                                                 args.kind == CollectiveKind::kBroadcast
                                             ? 1
                                             : PartsPerMessage(topology_),
                    .chunk_bytes = options_.chunk_bytes});
  return Prepare({.plan = std::move(plan),
                  .parts = std::move(parts),
                  .dtype = args.dtype,
                  .chunks = chunks,
                  .topology = &topology_,
                  .flat = choice.flat || choice.one_shot,
                  .keep_tail_in_flight =
                      topology_.num_nodes() > 1 && args.kind != CollectiveKind::kReduceScatter &&
                      args.kind != CollectiveKind::kBarrier && !choice.gather.compressed()});
}

Result<std::unique_ptr<Communicator>> Communicator::Create(std::unique_ptr<Transport> transport,
                                                           std::shared_ptr<ControlPlane> control,
                                                           Topology topology,
                                                           const CommunicatorOptions& options) {
  ZPP_RETURN_IF_ERROR(CheckOptions(options));
  if (!transport && topology.world() == 1) transport = std::move(MakeInProcessGroup(1).front());
  if (!transport) return InvalidArgument("communicator: several ranks need a transport");
  if (topology.world() != transport->world()) {
    return InvalidArgument("communicator: the topology has " + std::to_string(topology.world()) +
                           " ranks, the transport " + std::to_string(transport->world()));
  }
  return std::unique_ptr<Communicator>(new Communicator(std::make_unique<Impl>(
      std::move(transport), std::move(control), std::move(topology), options)));
}

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::~Communicator() = default;

int Communicator::rank() const { return impl_->transport().rank(); }
int Communicator::world() const { return impl_->topology().world(); }
const Topology& Communicator::topology() const { return impl_->topology(); }
const CommunicatorOptions& Communicator::options() const { return impl_->options(); }
Transport& Communicator::transport() { return impl_->transport(); }

Status Communicator::AllGather(ConstVec in, Vec out, const CallOptions& call) {
  return impl_->Run(CheckAllGather(impl_->CallerOf(call), in, out), call);
}
Status Communicator::ReduceScatter(ConstVec in, Vec out, const CallOptions& call) {
  return impl_->Run(CheckReduceScatter(impl_->CallerOf(call), in, out), call);
}
Status Communicator::AllReduce(ConstVec in, Vec out, const CallOptions& call) {
  return impl_->Run(CheckAllReduce(impl_->CallerOf(call), in, out), call);
}
Status Communicator::AllToAll(ConstVec in, Vec out, const CallOptions& call) {
  return impl_->Run(CheckAllToAll(impl_->CallerOf(call), in, out), call);
}
Status Communicator::Broadcast(Vec data, int root, const CallOptions& call) {
  return impl_->Run(CheckBroadcast(impl_->CallerOf(call), data, root), call);
}
Status Communicator::Barrier(const CallOptions& call) {
  return impl_->Run(CheckBarrier(impl_->CallerOf(call)), call);
}

Work Communicator::StartAllGather(ConstVec in, Vec out, const CallOptions& call) {
  return impl_->Start(CheckAllGather(impl_->CallerOf(call), in, out), call);
}
Work Communicator::StartReduceScatter(ConstVec in, Vec out, const CallOptions& call) {
  return impl_->Start(CheckReduceScatter(impl_->CallerOf(call), in, out), call);
}
Work Communicator::StartAllReduce(ConstVec in, Vec out, const CallOptions& call) {
  return impl_->Start(CheckAllReduce(impl_->CallerOf(call), in, out), call);
}
Work Communicator::StartAllToAll(ConstVec in, Vec out, const CallOptions& call) {
  return impl_->Start(CheckAllToAll(impl_->CallerOf(call), in, out), call);
}
Work Communicator::StartBroadcast(Vec data, int root, const CallOptions& call) {
  return impl_->Start(CheckBroadcast(impl_->CallerOf(call), data, root), call);
}
Work Communicator::StartBarrier(const CallOptions& call) {
  return impl_->Start(CheckBarrier(impl_->CallerOf(call)), call);
}

Result<Plan> Communicator::Explain(CollectiveKind kind, DType dtype, int64_t elems,
                                   const CallOptions& call, int root) {
  ZPP_ASSIGN_OR_RETURN(const CallArguments args,
                       CheckShape(impl_->CallerOf(call),
                                  {.kind = kind, .dtype = dtype, .elems = elems, .root = root}));
  ZPP_ASSIGN_OR_RETURN(const auto prepared, impl_->PlanFor(args, call));
  return prepared->plan;
}

Result<std::vector<int64_t>> Communicator::PlannedBytes(CollectiveKind kind, DType dtype,
                                                        int64_t elems, const CallOptions& call,
                                                        int root) {
  ZPP_ASSIGN_OR_RETURN(const CallArguments args,
                       CheckShape(impl_->CallerOf(call),
                                  {.kind = kind, .dtype = dtype, .elems = elems, .root = root}));
  ZPP_ASSIGN_OR_RETURN(const auto prepared, impl_->PlanFor(args, call));
  return SentBytes(prepared->plan, prepared->parts, prepared->pipeline.chunks,
                   impl_->topology().tiers());
}

Result<double> Communicator::PredictSeconds(CollectiveKind kind, DType dtype, int64_t elems,
                                            const Fabric& fabric, const CallOptions& call) {
  ZPP_ASSIGN_OR_RETURN(
      const CallArguments args,
      CheckShape(impl_->CallerOf(call), {.kind = kind, .dtype = dtype, .elems = elems}));
  return impl_->Predict(args, call, fabric);
}

Result<ReduceFeedback> Communicator::MakeFeedback(DType dtype, int64_t elems,
                                                  const CallOptions& call, FeedbackHops hops,
                                                  ResidualType type, CollectiveKind kind) {
  if (kind != CollectiveKind::kReduceScatter && kind != CollectiveKind::kAllReduce) {
    return InvalidArgument(std::string(CollectiveName(kind)) + " takes no feedback");
  }
  ZPP_ASSIGN_OR_RETURN(
      const CallArguments args,
      CheckShape(impl_->CallerOf(call), {.kind = kind, .dtype = dtype, .elems = elems}));
  return impl_->MakeFeedback(args, call, hops, type);
}

Traffic Communicator::traffic() const {
  const SentTraffic& sent = impl_->engine().traffic();
  return {sent.bytes, sent.messages};
}

void Communicator::Abort(const Status& why) {
  impl_->engine().Fail(why.ok() ? Status(StatusCode::kAborted, "Abort() was called") : why);
}

Status Communicator::status() const { return impl_->engine().failure(); }

Status Communicator::Shutdown(Deadline deadline) { return impl_->Shutdown(deadline); }

}  // namespace zpp
