#include "topology/node_identity.h"

#include <unistd.h>

#include <fstream>
#include <map>
#include <random>
#include <vector>

#include "common/env.h"

namespace zpp {
namespace {

std::string HostName() {
  char name[256] = {};
  // A name that does not fit may lack the terminator.
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

// "ipc:[4026531839]": ranks share memory only inside one IPC namespace, loopback only inside one
// network namespace.
std::string Namespace(const std::string& proc, const char* kind) {
  char target[64] = {};
  const std::string path = proc + "/self/ns/" + kind;
  const ssize_t length = readlink(path.c_str(), target, sizeof(target) - 1);
  return length > 0 ? std::string(target, static_cast<size_t>(length)) : std::string();
}

}  // namespace

std::string BootId(const std::string& proc) {
  std::ifstream file(proc + "/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

NodeIdentity ThisNode(const std::string& proc) {
  if (EnvIsSet(EnvVar::kNodeId)) return {"id=" + GetEnv(EnvVar::kNodeId)};
  const std::string boot = BootId(proc);
  if (boot.empty()) {
    static const unsigned here = std::random_device()();  // the same after a fork, but for the pid
    return {"host=" + HostName() + " process=" + std::to_string(getpid()) + '-' +
            std::to_string(here)};
  }
  return {"boot=" + boot + " host=" + HostName() + ' ' + Namespace(proc, "ipc") + ' ' +
          Namespace(proc, "net")};
}

Topology TopologyFromIdentities(std::span<const NodeIdentity> of_rank) {
  std::map<std::string_view, int> id_of_text;
  std::vector<int> label;
  label.reserve(of_rank.size());
  for (const NodeIdentity& node : of_rank) {
    const auto next = static_cast<int>(id_of_text.size());
    label.push_back(id_of_text.try_emplace(node.text, next).first->second);
  }
  const auto world = static_cast<int>(of_rank.size());
  if (id_of_text.size() < 2) return Topology::Flat(world);
  // Fails only for a world that Flat() does not take either.
  Result<Topology> nodes = Topology::FromLabels(world, {&label, 1});
  return nodes.ok() ? std::move(nodes).value() : Topology::Flat(world);
}

}  // namespace zpp
