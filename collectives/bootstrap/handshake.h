// The ranks compare what must be equal before they send each other anything else.
#pragma once

#include <string>
#include <vector>

#include "collectives/bootstrap/out_of_band.h"
#include "common/deadline.h"
#include "common/status.h"

namespace zpp {

struct HandshakeItem {
  std::string name;   // "wire version"
  std::string value;  // as people read it: it appears in the message
};

// All ranks call this with the same names in the same order. kMismatch, the same on every rank,
// names the ranks that differ from rank 0 and in what.
Status Agree(OutOfBand& channel, const std::vector<HandshakeItem>& items, Deadline deadline);

}  // namespace zpp
