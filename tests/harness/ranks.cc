#include "tests/harness/ranks.h"

#include <cstring>
#include <thread>

#include "tests/harness/rank_processes.h"

namespace zpp::test {

std::string RankOutcome::ToString() const {
  switch (kind) {
    case kReturned:
      return status.ok() ? "ok" : status.ToString();
    case kExited:
      return "exited with " + std::to_string(detail) + " before it returned";
    case kSignalled:
      return "killed by signal " + std::to_string(detail) + " (" + strsignal(detail) + ")";
    case kTimedOut:
      return "not back in time";
  }
  return "?";
}

testing::AssertionResult AllOk(const std::vector<RankOutcome>& outcomes) {
  std::string text;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].ok()) continue;
    text += "rank " + std::to_string(rank) + ": " + outcomes[rank].ToString() + "\n";
  }
  return text.empty() ? testing::AssertionSuccess() : testing::AssertionFailure() << text;
}

std::vector<RankOutcome> RunThreads(int world, const RankBody& body) {
  std::vector<RankOutcome> outcomes(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&body, &outcome = outcomes[static_cast<size_t>(rank)], rank] {
      Result<std::string> result = body(rank);
      outcome.kind = RankOutcome::kReturned;
      outcome.status = result.ok() ? Status() : result.status();
      if (result.ok()) outcome.value = *std::move(result);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::vector<RankOutcome> RunProcesses(int world, double seconds, const RankBody& body) {
  const Deadline deadline = Deadline::In(seconds);
  RankProcesses ranks(world, body);
  return ranks.Collect(deadline);
}

}  // namespace zpp::test
