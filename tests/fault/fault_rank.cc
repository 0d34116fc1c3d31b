#include "tests/fault/fault_rank.h"

#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "collectives/connect.h"
#include "tests/fault/cut_network.h"
#include "tests/harness/ranks.h"

namespace zpp::test {
namespace {

void SetEnv(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

struct Seat {
  int rank, world;
  std::string host;
  uint16_t port;
};

Result<std::unique_ptr<Communicator>> Connect(const FaultSetup& setup, const Seat& seat) {
  SetEnv("RANK", std::to_string(seat.rank));
  SetEnv("WORLD_SIZE", std::to_string(seat.world));
  SetEnv("MASTER_ADDR", seat.host);
  SetEnv("MASTER_PORT", std::to_string(seat.port));
  SetEnv("ZPP_JOB_ID", std::to_string(seat.port));
  ConnectOptions options;
  options.communicator.timeout_s = setup.deadline_s;
  options.startup_timeout_s = 20;
  if (setup.transport == "tcp") options.nodes = seat.world;
  if (setup.transport == "mixed") options.nodes = seat.world > 1 ? 2 : 1;
  if (setup.transport == "shm") options.nodes = 1;
  if (setup.action == FaultAction::kCut) options.nodes = 0;  // found out: every rank is a node
  return ConnectFromEnv(options);
}

// One all-reduce whose every element is known.
Status AllReduceOnce(Communicator& communicator, int64_t elems, int64_t round,
                     std::vector<float>& scratch) {
  const auto rank = static_cast<float>(communicator.rank() + 1),
             offset = static_cast<float>(round % 7);
  const auto world = static_cast<float>(communicator.world());
  scratch.assign(static_cast<size_t>(elems), rank + offset);
  ZPP_RETURN_IF_ERROR(communicator.AllReduce({DType::kF32, scratch.data(), elems},
                                             {DType::kF32, scratch.data(), elems}));
  const float expected = world * (world + 1) / 2 + world * offset;
  for (float value : scratch)
    ZPP_REQUIRE_MSG(value == expected, "wrong sum in round " + std::to_string(round));
  return {};
}

Status AllReduceBlindly(Communicator& communicator, const FaultSetup& setup,
                        std::vector<float>& data) {
  const Vec all{DType::kF32, data.data(), setup.elems};
  if (!setup.polling) return communicator.AllReduce({all.dtype, all.data, all.elems}, all);
  Work work = communicator.StartAllReduce({all.dtype, all.data, all.elems}, all);
  while (!work.Poll()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  return work.status();
}

// Until something fails.
Status AllReduceOnAndOn(Communicator& communicator, const FaultSetup& setup, int rank,
                        FaultStage& stage) {
  const auto r = static_cast<size_t>(rank);
  std::vector<float> data(static_cast<size_t>(setup.elems));
  for (int64_t round = 0;; ++round) {
    // Enough of them check the sum that wrong data would show; the others stay in the collective
    // nearly all the time.
    if (round % 16 == 0) {
      ZPP_RETURN_IF_ERROR(AllReduceOnce(communicator, setup.elems, round, data));
    } else {
      stage.in_collective[r] = true;
      const Status status = AllReduceBlindly(communicator, setup, data);
      stage.in_collective[r] = false;
      ZPP_RETURN_IF_ERROR(status);
    }
    stage.rounds[r].fetch_add(1);
  }
}

// The survivors take new ranks in the old order.
Status StartAnew(const FaultSetup& setup, uint16_t port, int rank, int victim) {
  const int host = victim == 0 ? 1 : 0;
  const Seat seat{
      .rank = rank > victim ? rank - 1 : rank,
      .world = setup.ranks - 1,
      .host = setup.action == FaultAction::kCut ? CutNetwork::AddressOf(host) : "127.0.0.1",
      .port = static_cast<uint16_t>(port + 1)};
  ZPP_ASSIGN_OR_RETURN(const auto communicator, Connect(setup, seat));
  std::vector<float> scratch;
  for (int64_t round = 0; round < 3; ++round) {
    ZPP_RETURN_IF_ERROR(AllReduceOnce(*communicator, 100'003, round, scratch));
  }
  return communicator->Shutdown(Deadline::In(10));
}

}  // namespace

FaultStage* FaultStage::Make() {
  void* memory =
      mmap(nullptr, sizeof(FaultStage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) FaultStage;
}

int64_t Now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             Deadline::Clock::now().time_since_epoch())
      .count();
}

Result<std::string> PlayRank(const FaultSetup& setup, uint16_t port, int rank, FaultStage& stage) {
  std::string host = "127.0.0.1";
  if (setup.action == FaultAction::kCut) {
    ZPP_RETURN_IF_ERROR(CutNetwork::EnterOwnNamespaces());
    stage.in_namespace[static_cast<size_t>(rank)] = 1;
    const Deadline deadline = Deadline::In(20);
    while (!stage.network_up && !deadline.expired())
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ZPP_RETURN_IF_ERROR(CutNetwork::AwaitLink(deadline));
    host = CutNetwork::AddressOf(0);
  }
  Status failure;
  int64_t error_ns = 0;
  {
    ZPP_ASSIGN_OR_RETURN(const auto communicator, Connect(setup, {rank, setup.ranks, host, port}));
    failure = AllReduceOnAndOn(*communicator, setup, rank, stage);
    error_ns = Now_ns();
  }
  const int victim = stage.victim;
  Status rebuilt;
  if (rank != victim) rebuilt = StartAnew(setup, port, rank, victim);
  const nlohmann::json json = {{"error_ns", error_ns},
                               {"code", std::string(StatusCodeName(failure.code()))},
                               {"lost_rank", failure.lost_rank()},
                               {"message", failure.message()},
                               {"rebuilt", rebuilt.ok() ? "" : rebuilt.ToString()}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace zpp::test
