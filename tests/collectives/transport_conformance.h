// One suite that holds every transport to the contract of collectives/transport/transport.h. A test
// program links transport_conformance.cc and instantiates TransportConformance with its backends.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "collectives/transport/transport.h"
#include "tests/harness/ranks.h"

namespace zpp::test {

// What one rank does with its transport. Shutdown() is the backend's to call after a case that
// ended well.
using TransportCase = std::function<Status(Transport&)>;

struct TransportBackend {
  std::string name;
  // Makes `world` ranks, runs the case on each. A backend with `leave` set destroys the transport
  // without Shutdown.
  std::function<std::vector<RankOutcome>(int world, bool shut_down, const TransportCase&)> run;
  // How a backend prints in test names.
  friend void PrintTo(const TransportBackend& backend, std::ostream* out) { *out << backend.name; }
};

class TransportConformance : public testing::TestWithParam<TransportBackend> {
 protected:
  // Every rank runs the case, then meets the others in Shutdown; all must end well.
  void Run(int world, const TransportCase& body) const;
  // Ranks go away without Shutdown; all must end well otherwise.
  void RunWithoutShutdown(int world, const TransportCase& body) const;
};

inline std::string BackendName(const testing::TestParamInfo<TransportBackend>& info) {
  return info.param.name;
}

// Ranks as threads over transports that `make` returns for a world; `wrap` may put a wrapper around
// each.
TransportBackend ThreadBackend(
    std::string name, std::function<std::vector<std::unique_ptr<Transport>>(int world)> make);
// Ranks as forked processes; `make` runs in the child.
TransportBackend ProcessBackend(
    std::string name, std::function<Result<std::unique_ptr<Transport>>(int rank, int world)> make);

}  // namespace zpp::test
