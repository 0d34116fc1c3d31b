#include "collectives/connect.h"

#include <algorithm>
#include <iomanip>
#include <limits>
#include <sstream>
#include <utility>

#include "collectives/bootstrap/control_plane.h"
#include "collectives/bootstrap/handshake.h"
#include "collectives/bootstrap/internal/socket.h"
#include "collectives/bootstrap/launch_env.h"
#include "collectives/bootstrap/unique_id.h"
#include "collectives/transport/in_process.h"
#include "collectives/transport/throttle.h"
#include "collectives/transport/ucx_transport.h"
#include "common/env.h"
#include "common/log.h"
#include "quant/wire.h"
#include "topology/declared.h"
#include "topology/node_identity.h"

namespace zpp {
namespace {

// What is declared (ZPP_TOPOLOGY before options.topology before the rest; see topology/declared.h),
// or else what the ranks say about their nodes.
Result<Topology> ChooseTopology(int world, const ConnectOptions& options,
                                std::span<const NodeIdentity> of_rank) {
  if (options.topology && !EnvIsSet(EnvVar::kTopologyFile)) {
    if (options.topology->world() == world) return *options.topology;
    return InvalidArgument("the declared topology has " +
                           std::to_string(options.topology->world()) + " ranks, this job has " +
                           std::to_string(world));
  }
  ZPP_ASSIGN_OR_RETURN(std::optional<Topology> declared, DeclaredTopology(world, options.nodes));
  return declared ? *std::move(declared) : TopologyFromIdentities(of_rank);
}

// 0, or large enough to be worth a message.
Result<int64_t> ChunkBytesFromEnv() {
  constexpr int64_t kLeast_bytes = 4096, kMost_bytes = int64_t{1} << 30;
  ZPP_ASSIGN_OR_RETURN(const int64_t bytes, GetEnvInteger(EnvVar::kChunkBytes, 0, kMost_bytes));
  if (bytes == 0) return bytes;
  return GetEnvInteger(EnvVar::kChunkBytes, kLeast_bytes, kMost_bytes);
}

// Variables that are set win over the options.
Result<ConnectOptions> WithEnvironment(ConnectOptions options) {
  if (const std::string name = GetEnv(EnvVar::kTransport); name != "ucx") {
    return InvalidArgument("ZPP_TRANSPORT='" + name + "': expected ucx");
  }
  CommunicatorOptions& communicator = options.communicator;
  if (EnvIsSet(EnvVar::kTimeout)) {
    ZPP_ASSIGN_OR_RETURN(communicator.timeout_s, GetEnvNumber(EnvVar::kTimeout, 0.01, 86400));
    options.startup_timeout_s = communicator.timeout_s;
  }
  if (EnvIsSet(EnvVar::kThreads)) {
    ZPP_ASSIGN_OR_RETURN(const int64_t threads,
                         GetEnvInteger(EnvVar::kThreads, 1, kMaxCodecThreads));
    communicator.codec_threads = static_cast<int>(threads);
  }
  if (EnvIsSet(EnvVar::kChunkBytes)) {
    ZPP_ASSIGN_OR_RETURN(communicator.chunk_bytes, ChunkBytesFromEnv());
  }
  if (EnvIsSet(EnvVar::kCheckWire)) {
    ZPP_ASSIGN_OR_RETURN(const int64_t check, GetEnvInteger(EnvVar::kCheckWire, 0, 1));
    communicator.check_wire = check == 1;
  }
  if (!(options.startup_timeout_s > 0) || !(communicator.timeout_s > 0)) {
    return InvalidArgument("a timeout must be positive");
  }
  return options;
}

// Every digit: ranks whose bounds differ in the last one may choose different encodings.
std::string NumberText(double value) {
  std::ostringstream text;
  text << std::setprecision(std::numeric_limits<double>::max_digits10) << value;
  return text.str();
}

std::string PolicyText(const CollectivePolicy& policy) {
  std::string text = "intra " + ToString(policy.intra) + ", inter " + ToString(policy.inter) +
                     ", min_compress_bytes " + std::to_string(policy.min_compress_bytes) +
                     ", max_rel_error " + NumberText(policy.max_rel_error);
  if (policy.flat) text += ", flat";
  if (policy.wide_partial_sums) text += ", wide partial sums";
  return text;
}

Status ShakeHands(ControlPlane& control, const ConnectOptions& options, const Topology& topology,
                  Deadline deadline) {
  const std::vector<HandshakeItem> items = {
      {"zpp's version", ZPP_VERSION},
      {"the wire format's version", std::to_string(kWireVersion)},
      {"UCX's version", UcxRuntimeVersion()},
      {"the topology", topology.Summary()},
      {"the policy", PolicyText(options.communicator.policy)},
      {"chunk_bytes", std::to_string(options.communicator.chunk_bytes)},
      {"inter_bytes_per_s", NumberText(options.inter_bytes_per_s)},
  };
  return Agree(control, items, deadline);
}

Result<std::unique_ptr<Transport>> Throttle(std::unique_ptr<Transport> transport,
                                            const Topology& topology, double inter_bytes_per_s) {
  if (inter_bytes_per_s == 0 || topology.tiers() < 2) return transport;
  std::vector<double> rates(static_cast<size_t>(topology.tiers()), inter_bytes_per_s);
  rates[0] = 0;
  return MakeThrottled(std::move(transport), topology, rates);
}

using Made = Result<std::unique_ptr<Communicator>>;

Made ConnectAlone(const ConnectOptions& options) {
  const std::vector<NodeIdentity> self = {ThisNode()};
  ZPP_ASSIGN_OR_RETURN(Topology topology, ChooseTopology(1, options, self));
  return Communicator::Create(std::move(MakeInProcessGroup(1).front()), nullptr,
                              std::move(topology), options.communicator);
}

Result<std::vector<NodeIdentity>> GatherIdentities(ControlPlane& control, Deadline deadline) {
  ZPP_ASSIGN_OR_RETURN(const auto texts, control.AllGather(ThisNode().text, deadline));
  std::vector<NodeIdentity> of_rank;
  for (const std::string& text : texts) of_rank.push_back({text});
  return of_rank;
}

Made ConnectOver(const std::shared_ptr<ControlPlane>& control, const ConnectOptions& options,
                 Deadline deadline) {
  ZPP_ASSIGN_OR_RETURN(const auto of_rank, GatherIdentities(*control, deadline));
  ZPP_ASSIGN_OR_RETURN(Topology topology, ChooseTopology(control->world(), options, of_rank));
  ZPP_RETURN_IF_ERROR(ShakeHands(*control, options, topology, deadline));
  ZPP_ASSIGN_OR_RETURN(UcxOptions ucx, UcxOptionsFromEnv());
  ucx.timeout_s = options.communicator.timeout_s;
  ZPP_ASSIGN_OR_RETURN(auto transport, MakeUcxTransport(control, topology, ucx, deadline));
  ZPP_ASSIGN_OR_RETURN(transport,
                       Throttle(std::move(transport), topology, options.inter_bytes_per_s));
  return Communicator::Create(std::move(transport), control, std::move(topology),
                              options.communicator);
}

Made ConnectAt(RendezvousSpec spec, const ConnectOptions& given) {
  if (spec.world < 1 || spec.rank < 0 || spec.rank >= spec.world) {
    return InvalidArgument("there is no rank " + std::to_string(spec.rank) + " in a world of " +
                           std::to_string(spec.world));
  }
  ZPP_ASSIGN_OR_RETURN(const ConnectOptions options, WithEnvironment(given));
  SetLogRank(spec.rank);
  if (spec.world == 1) return ConnectAlone(options);
  const Deadline deadline = Deadline::In(options.startup_timeout_s);
  ZPP_ASSIGN_OR_RETURN(const ControlOptions control_options,
                       ControlOptionsFromEnv(options.communicator.timeout_s));
  ZPP_ASSIGN_OR_RETURN(const auto control,
                       JoinControlPlane(std::move(spec), control_options, deadline));
  Made made = ConnectOver(control, options, deadline);
  // The others need not wait for a rank that cannot go on.
  if (!made.ok()) control->Abort(made.status().message());
  return made;
}

}  // namespace

Made ConnectFromEnv(const ConnectOptions& options) {
  ZPP_ASSIGN_OR_RETURN(LaunchEnv env, ReadLaunchEnv());
  return ConnectAt({.rank = env.rank,
                    .world = env.world,
                    .job = env.job,
                    .host = std::move(env.host),
                    .ports = std::move(env.ports),
                    .listener = {}},
                   options);
}

Status CheckEnvironment(int world, const ConnectOptions& given) {
  ZPP_ASSIGN_OR_RETURN(const ConnectOptions options, WithEnvironment(given));
  const std::vector<NodeIdentity> of_rank(static_cast<size_t>(std::max(world, 0)), ThisNode());
  ZPP_RETURN_IF_ERROR(ChooseTopology(world, options, of_rank).status());
  ZPP_RETURN_IF_ERROR(GetEnvInteger(EnvVar::kJobId, 0, INT64_MAX).status());
  ZPP_RETURN_IF_ERROR(UcxOptionsFromEnv().status());
  if (EnvIsSet(EnvVar::kSocketIfname)) {
    ZPP_RETURN_IF_ERROR(internal::AddressToAdvertise().status());
  }
  return ControlOptionsFromEnv(options.communicator.timeout_s).status();
}

Made ConnectWithId(const UniqueId& id, int world, int rank, const ConnectOptions& options) {
  ZPP_ASSIGN_OR_RETURN(auto content, internal::IdContent::Unpack(id));
  if (content.machine != internal::MachineId() && internal::IsLoopback(content.host)) {
    return InvalidArgument(
        "the unique id was made on another machine, which knows no address but " + content.host +
        ": set ZPP_SOCKET_IFNAME there");
  }
  RendezvousSpec spec{.rank = rank,
                      .world = world,
                      .job = content.job,
                      .host = content.host,
                      .ports = {content.port},
                      .listener = {}};
  if (rank == 0) {
    spec.listener = internal::TakeListener(content.job);
    if (!spec.listener.valid() && world > 1) {
      return InvalidArgument(
          "rank 0 must be the process that made the unique id, and use it once only");
    }
  }
  return ConnectAt(std::move(spec), options);
}

Made ConnectWithCallback(const GatherCallback& gather, int world, int rank,
                         const ConnectOptions& options) {
  std::string mine;
  Status made_id;
  if (rank == 0) {
    const auto id = MakeUniqueId();
    made_id = id.status();
    if (id.ok()) mine.assign(id->bytes.begin(), id->bytes.end());
  }
  ZPP_ASSIGN_OR_RETURN(const auto all, gather(mine));
  ZPP_RETURN_IF_ERROR(made_id);
  if (!all.empty() && all.front().empty()) {
    return Status(StatusCode::kAborted, "rank 0 could not make a unique id: it says why");
  }
  UniqueId id;
  if (all.size() != static_cast<size_t>(world) || all.front().size() != id.bytes.size()) {
    return DataLoss("the gather callback returned " + std::to_string(all.size()) +
                    " blobs, of which the first has " +
                    std::to_string(all.empty() ? 0 : all.front().size()) + " bytes; " +
                    std::to_string(world) + " and 128 were due");
  }
  std::copy(all.front().begin(), all.front().end(), id.bytes.begin());
  return ConnectWithId(id, world, rank, options);
}

Result<std::vector<std::unique_ptr<Communicator>>> ConnectInProcess(int world,
                                                                    const ConnectOptions& given) {
  if (world < 1) return InvalidArgument("a world of " + std::to_string(world) + " has no ranks");
  ZPP_ASSIGN_OR_RETURN(const ConnectOptions options, WithEnvironment(given));
  const std::vector<NodeIdentity> of_rank(static_cast<size_t>(world), ThisNode());
  ZPP_ASSIGN_OR_RETURN(const Topology topology, ChooseTopology(world, options, of_rank));
  InProcessWorld made = MakeInProcessWorld(world);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (size_t rank = 0; rank < made.transports.size(); ++rank) {
    ZPP_ASSIGN_OR_RETURN(auto transport, Throttle(std::move(made.transports[rank]), topology,
                                                  options.inter_bytes_per_s));
    ZPP_ASSIGN_OR_RETURN(auto communicator,
                         Communicator::Create(std::move(transport), made.controls[rank], topology,
                                              options.communicator));
    communicators.push_back(std::move(communicator));
  }
  return communicators;
}

}  // namespace zpp
