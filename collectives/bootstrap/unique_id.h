// What a UniqueId holds.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/bootstrap/internal/fd.h"
#include "collectives/connect.h"
#include "common/status.h"

namespace zpp::internal {

// On the wire: "zpp-id-1", u64 job, u16 port, u64 machine, then the host as a string; the rest is
// zero.
struct IdContent {
  std::string host;
  uint16_t port = 0;
  uint64_t job = 0;
  uint64_t machine = 0;  // of the machine that made it

  UniqueId Pack() const;
  // kDataLoss for bytes that MakeUniqueId never wrote.
  static Result<IdContent> Unpack(const UniqueId& id);
};

// The socket that MakeUniqueId left listening, once; invalid when this process did not make the id.
Fd TakeListener(uint64_t job);
// Equal for the processes of one boot of one machine.
uint64_t MachineId();

}  // namespace zpp::internal
