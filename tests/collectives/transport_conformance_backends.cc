#include <memory>
#include <utility>

#include "tests/collectives/transport_conformance.h"
#include "tests/collectives/transport_conformance_util.h"

namespace zpp::test {

void TransportConformance::Run(int world, const TransportCase& body) const {
  EXPECT_TRUE(AllOk(GetParam().run(world, /*shut_down=*/true, body)));
}

void TransportConformance::RunWithoutShutdown(int world, const TransportCase& body) const {
  EXPECT_TRUE(AllOk(GetParam().run(world, /*shut_down=*/false, body)));
}

namespace {
Result<std::string> RunCase(std::unique_ptr<Transport> transport, bool shut_down,
                            const TransportCase& body) {
  ZPP_RETURN_IF_ERROR(body(*transport));
  if (shut_down) ZPP_RETURN_IF_ERROR(transport->Shutdown(Patience()));
  return std::string();
}
}  // namespace

TransportBackend ThreadBackend(
    std::string name, std::function<std::vector<std::unique_ptr<Transport>>(int world)> make) {
  return {.name = std::move(name),
          .run = [make](int world, bool shut_down, const TransportCase& body) {
            auto transports = make(world);
            return RunThreads(world, [&](int rank) {
              return RunCase(std::move(transports[static_cast<size_t>(rank)]), shut_down, body);
            });
          }};
}

TransportBackend ProcessBackend(
    std::string name, std::function<Result<std::unique_ptr<Transport>>(int rank, int world)> make) {
  return {.name = std::move(name),
          .run = [make](int world, bool shut_down, const TransportCase& body) {
            return RunProcesses(world, 90, [&](int rank) -> Result<std::string> {
              ZPP_ASSIGN_OR_RETURN(auto transport, make(rank, world));
              return RunCase(std::move(transport), shut_down, body);
            });
          }};
}

}  // namespace zpp::test
