#include "collectives/bootstrap/unique_id.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string_view>

#include "collectives/bootstrap/internal/bytes.h"
#include "collectives/bootstrap/internal/socket.h"
#include "topology/node_identity.h"

namespace zpp {
namespace internal {
namespace {

constexpr std::string_view kMagic = "zpp-id-1";

// Sockets of ids that have been made and not yet been used. Never destroyed: ids may be made by
// static objects.
struct Listeners {
  std::mutex mutex;
  std::map<uint64_t, Fd> by_job;
};
Listeners& TheListeners() {
  static auto* listeners = new Listeners;
  return *listeners;
}

}  // namespace

UniqueId IdContent::Pack() const {
  ByteWriter out;
  const std::string body = out.Put(job).Put(port).Put(machine).PutString(host).Take();
  UniqueId id;
  std::copy(kMagic.begin(), kMagic.end(), id.bytes.begin());
  std::copy(body.begin(), body.end(), id.bytes.begin() + kMagic.size());
  return id;
}

Result<IdContent> IdContent::Unpack(const UniqueId& id) {
  const std::string_view bytes(id.bytes.data(), id.bytes.size());
  ByteReader in(bytes.substr(kMagic.size()));
  IdContent content;
  content.job = in.Get<uint64_t>();
  content.port = in.Get<uint16_t>();
  content.machine = in.Get<uint64_t>();
  content.host = in.GetString();
  if (bytes.substr(0, kMagic.size()) != kMagic || !in.ok() || content.port == 0 ||
      content.host.empty()) {
    return DataLoss("these 128 bytes are no unique id of this version of zpp");
  }
  return content;
}

Fd TakeListener(uint64_t job) {
  Listeners& listeners = TheListeners();
  const std::lock_guard lock(listeners.mutex);
  const auto found = listeners.by_job.extract(job);
  return found.empty() ? Fd() : std::move(found.mapped());
}

uint64_t MachineId() {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : BootId()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace internal

Result<UniqueId> MakeUniqueId() {
  ZPP_ASSIGN_OR_RETURN(const std::string host, internal::AddressToAdvertise());
  constexpr size_t kMaxHost_bytes = 64;
  if (host.size() > kMaxHost_bytes) return Internal("the address '" + host + "' is too long");
  ZPP_ASSIGN_OR_RETURN(internal::Fd listener, internal::Listen({.host = host, .port = 0}));
  ZPP_ASSIGN_OR_RETURN(const uint16_t port, internal::LocalPort(listener.get()));
  std::random_device random;
  const uint64_t job = (static_cast<uint64_t>(random()) << 32) | random();
  internal::Listeners& listeners = internal::TheListeners();
  const std::lock_guard lock(listeners.mutex);
  listeners.by_job[job] = std::move(listener);
  const internal::IdContent content{
      .host = host, .port = port, .job = job, .machine = internal::MachineId()};
  return content.Pack();
}

}  // namespace zpp
