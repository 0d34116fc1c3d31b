#include "collectives/communicator.h"

#include <utility>

#include "collectives/internal/communicator_impl.h"
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

}  // namespace

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
  auto family =
      std::make_shared<Family>(std::move(transport), std::move(control), options.codec_threads);
  return std::unique_ptr<Communicator>(new Communicator(
      std::make_unique<Impl>(std::move(family), Impl::Group{}, std::move(topology), options)));
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

Result<std::unique_ptr<Communicator>> Communicator::Split(int color, int key) {
  ZPP_ASSIGN_OR_RETURN(auto group, impl_->Split(color, key));
  if (!group) return std::unique_ptr<Communicator>();
  return std::unique_ptr<Communicator>(new Communicator(std::move(group)));
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
