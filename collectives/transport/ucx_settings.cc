// What UCX is told before it starts.
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "collectives/transport/internal/ucx_core.h"
#include "collectives/transport/ucx_transport.h"
#include "common/env.h"

namespace zpp {
namespace {

using Setting = std::pair<const char*, const char*>;

// UCX 1.13 takes the settings of a single transport from the environment only.
// Without ERROR_HANDLING shared memory is silently left out of endpoints that report a peer's
// failure.
constexpr std::array kEnvironment = {
    Setting{"UCX_POSIX_ERROR_HANDLING", "y"},
    // Of 64K and 128K, a link of 10 Gbit/s is filled to 75 %; of these, to 95 %. TX must be below
    // RX.
    Setting{"UCX_TCP_TX_SEG_SIZE", "256K"},
    Setting{"UCX_TCP_RX_SEG_SIZE", "512K"},
};

// Eager for every size: rendezvous is half duplex over TCP, and kernel-assisted copies touch memory
// of peers that may be gone. Zero copy makes UCX 1.13 abort inside progress when a connection is
// reset.
constexpr std::array kHostSettings = {
    Setting{"TLS", "posix,tcp,self"},       Setting{"RNDV_THRESH", "inf"},
    Setting{"ZCOPY_THRESH", "inf"},         Setting{"RNDV_SCHEME", "am"},
    Setting{"KEEPALIVE_INTERVAL", "500ms"},
};
constexpr std::array kRdmaSettings = {Setting{"KEEPALIVE_INTERVAL", "500ms"}};

bool HaveRdmaDevice() {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", error);
  return !error && devices != std::filesystem::directory_iterator();
}

// What the user has set himself stays.
Status Modify(ucp_config_t* config, const char* name, const std::string& value) {
  if (std::getenv((std::string("UCX_") + name).c_str()) != nullptr) return {};
  const ucs_status_t status = ucp_config_modify(config, name, value.c_str());
  if (status == UCS_OK) return {};
  return Internal(std::string("UCX does not take ") + name + "=" + value + ": " +
                  ucs_status_string(status));
}

Status Configure(UcxProfile profile, ucp_config_t* config) {
  profile = internal::Resolved(profile);
  const std::span<const Setting> settings = profile == UcxProfile::kHost
                                                ? std::span<const Setting>(kHostSettings)
                                                : std::span<const Setting>(kRdmaSettings);
  for (const auto& [name, value] : settings) ZPP_RETURN_IF_ERROR(Modify(config, name, value));
  const std::string interface = GetEnv(EnvVar::kSocketIfname);
  return interface.empty() ? Status() : Modify(config, "NET_DEVICES", interface);
}

Result<UcxProfile> ProfileOf(const std::string& name) {
  if (name == "auto") return UcxProfile::kAuto;
  if (name == "host") return UcxProfile::kHost;
  if (name == "rdma") return UcxProfile::kRdma;
  return InvalidArgument("ZPP_UCX_PROFILE='" + name + "': expected auto, host or rdma");
}

Status Failed(const char* what, ucs_status_t status) {
  return Internal(std::string(what) + ": " + ucs_status_string(status));
}

Status OpenContext(internal::UcxCore& core, ucp_config_t* config, int world) {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                      UCP_PARAM_FIELD_TAG_SENDER_MASK;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = static_cast<size_t>(world);
  params.tag_sender_mask = internal::kUcxMaxWorld - 1;
  const ucs_status_t status = ucp_init(&params, config, &core.context);
  return status == UCS_OK ? Status() : Failed("ucp_init", status);
}

Status OpenWorker(internal::UcxCore& core) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucs_status_t status = ucp_worker_create(core.context, &params, &core.worker);
  if (status != UCS_OK) return Failed("ucp_worker_create", status);
  status = ucp_worker_get_efd(core.worker, &core.event_fd);
  return status == UCS_OK ? Status() : Failed("ucp_worker_get_efd", status);
}

}  // namespace

Result<UcxOptions> UcxOptionsFromEnv() {
  UcxOptions options;
  ZPP_ASSIGN_OR_RETURN(options.profile, ProfileOf(GetEnv(EnvVar::kUcxProfile)));
  ZPP_ASSIGN_OR_RETURN(const int64_t window, GetEnvInteger(EnvVar::kNodeWindow, 0, 1));
  options.node_window = window == 1;
  return options;
}

std::string UcxRuntimeVersion() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

namespace internal {

UcxProfile Resolved(UcxProfile profile) {
  if (profile != UcxProfile::kAuto) return profile;
  return HaveRdmaDevice() ? UcxProfile::kRdma : UcxProfile::kHost;
}

Result<std::unique_ptr<UcxCore>> OpenUcx(UcxProfile profile, int world) {
  for (const auto& [name, value] : kEnvironment) ::setenv(name, value, /*overwrite=*/0);
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return Failed("ucp_config_read", status);
  }
  auto core = std::make_unique<UcxCore>();
  Status status = Configure(profile, config);
  if (status.ok()) status = OpenContext(*core, config, world);
  ucp_config_release(config);
  if (status.ok()) status = OpenWorker(*core);
  if (!status.ok()) {
    CloseUcx(std::move(core), Deadline::In(0));
    return status;
  }
  return core;
}

}  // namespace internal
}  // namespace zpp
