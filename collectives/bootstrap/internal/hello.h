// The first frame of a rank that comes to the rendezvous.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/bootstrap/internal/bytes.h"
#include "common/deadline.h"

namespace zpp::internal {

struct Hello {
  uint64_t job = 0;
  int32_t world = 0;
  int32_t rank = 0;
  uint32_t patience_ms = 0;  // how long the rank will wait for the others

  std::string Pack() const {
    return ByteWriter().Put(job).Put(world).Put(rank).Put(patience_ms).Take();
  }
  static bool Unpack(const std::string& body, Hello* out) {
    ByteReader in(body);
    out->job = in.Get<uint64_t>();
    out->world = in.Get<int32_t>();
    out->rank = in.Get<int32_t>();
    out->patience_ms = in.Get<uint32_t>();
    return in.done();
  }
};

// For frames that tell how long their sender waits; UINT32_MAX is for ever.
inline uint32_t PatienceMs(Deadline deadline) {
  const double ms = deadline.remaining_s() * 1e3;
  return ms >= 4e9 ? UINT32_MAX : static_cast<uint32_t>(ms);
}
inline Deadline AfterPatience(uint32_t patience_ms) {
  return patience_ms == UINT32_MAX ? Deadline::Never() : Deadline::In(patience_ms * 1e-3);
}

}  // namespace zpp::internal
