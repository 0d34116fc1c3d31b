#include "common/env.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace zpp {
namespace {

// In the order of EnvVar; tests hold the two together.
constexpr std::array kTable = {
    EnvInfo{EnvVar::kLog, "ZPP_LOG", "debug | info | warning | error | off", "warning",
            "Least level that is printed to standard error."},
    EnvInfo{EnvVar::kTransport, "ZPP_TRANSPORT", "ucx", "ucx",
            "What moves the bytes between processes."},
    EnvInfo{EnvVar::kTimeout, "ZPP_TIMEOUT", "seconds, 0.01 to 86400", "30",
            "Deadline of start-up and of a collective that was given none; zpp bw and train take "
            "60 when unset."},
    EnvInfo{EnvVar::kCommId, "ZPP_COMM_ID", "host:port", "",
            "Where rank 0 listens; without it MASTER_ADDR and MASTER_PORT."},
    EnvInfo{EnvVar::kJobId, "ZPP_JOB_ID", "0 to 9223372036854775807", "0",
            "Keeps ranks of an older job out of this one."},
    EnvInfo{EnvVar::kNodeId, "ZPP_NODE_ID", "any text", "",
            "Names this rank's node; ranks of equal names share a node."},
    EnvInfo{EnvVar::kLocalSize, "ZPP_LOCAL_SIZE", "0 to 1048576", "0",
            "Declares nodes of so many consecutive ranks; 0 leaves it to discovery."},
    EnvInfo{EnvVar::kTopologyFile, "ZPP_TOPOLOGY", "path of a JSON file", "",
            "Declares the topology; overrides discovery and every other declaration."},
    EnvInfo{EnvVar::kSocketIfname, "ZPP_SOCKET_IFNAME", "interface name", "",
            "Network interface for the control connections and TCP."},
    EnvInfo{EnvVar::kUcxProfile, "ZPP_UCX_PROFILE", "auto | host | rdma", "auto",
            "UCX settings: host is shared memory and TCP, rdma leaves rendezvous to UCX."},
    EnvInfo{EnvVar::kNodeWindow, "ZPP_NODE_WINDOW", "0 | 1", "1",
            "1: messages of 32 KiB to 1 MiB inside a node go through memory that its ranks share."},
    EnvInfo{EnvVar::kHeartbeat, "ZPP_HEARTBEAT", "seconds, 0.01 to 60", "0.2",
            "Period of the control plane's heartbeat."},
    EnvInfo{EnvVar::kThreads, "ZPP_THREADS", "1 to 64", "1", "Codec threads of a rank."},
    EnvInfo{
        EnvVar::kChunkBytes, "ZPP_CHUNK_BYTES", "0 | 4096 to 1073741824", "0",
        "fp32 bytes of a part per pipeline chunk; must be equal on all ranks. 0: chosen by size."},
    EnvInfo{EnvVar::kCheckWire, "ZPP_CHECK_WIRE", "0 | 1", "0",
            "1 checks every scale and code that arrives, not only message headers."},
    EnvInfo{EnvVar::kTarget, "ZPP_TARGET", "scalar | a SIMD target's name, e.g. AVX2", "",
            "Makes the codec use this target instead of the best one."},
};

std::string Complaint(const EnvInfo& info, const std::string& value) {
  return std::string(info.name) + "='" + value + "': expected " + std::string(info.values);
}

}  // namespace

std::span<const EnvInfo> EnvTable() { return kTable; }

const EnvInfo& Describe(EnvVar var) { return kTable[static_cast<size_t>(var)]; }

bool EnvIsSet(EnvVar var) {
  const char* value = std::getenv(std::string(Describe(var).name).c_str());
  return value != nullptr && *value != '\0';
}

std::string GetEnv(EnvVar var) {
  const EnvInfo& info = Describe(var);
  const char* value = std::getenv(std::string(info.name).c_str());
  return value != nullptr && *value != '\0' ? std::string(value) : std::string(info.fallback);
}

Result<double> GetEnvNumber(EnvVar var, double low, double high) {
  const std::string text = GetEnv(var);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) ||
      value < low || value > high) {
    return InvalidArgument(Complaint(Describe(var), text));
  }
  return value;
}

Result<int64_t> GetEnvInteger(EnvVar var, int64_t low, int64_t high) {
  const std::string text = GetEnv(var);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return InvalidArgument(Complaint(Describe(var), text));
  }
  return value;
}

}  // namespace zpp
