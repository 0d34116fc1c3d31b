#include "tests/fault/fault_run.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/fault/cut_network.h"
#include "tests/fault/fault_rank.h"
#include "tests/harness/rank_processes.h"

namespace zpp::test {
namespace {

using Json = nlohmann::json;

bool AwaitAll(int ranks, Deadline deadline, const std::function<bool(size_t)>& ready) {
  for (int rank = 0; rank < ranks;) {
    if (ready(static_cast<size_t>(rank))) {
      ++rank;
    } else if (deadline.expired()) {
      return false;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return true;
}

class FaultPlay {
 public:
  FaultPlay(const FaultSetup& setup, int run)
      : setup_(setup),
        stage_(FaultStage::Make()),
        random_(setup.seed * 7919 + static_cast<uint64_t>(run)) {
    report_.victim = run % setup.ranks;
    report_.zombie = setup.action == FaultAction::kKill && run / setup.ranks % 2 == 0;
    const auto spread = static_cast<unsigned>(getpid()) * 13 + static_cast<unsigned>(run) * 16;
    port_ = static_cast<uint16_t>(20000 + spread % 12000);
  }
  ~FaultPlay() {
    ranks_.reset();
    munmap(stage_, sizeof *stage_);
  }
  FaultPlay(const FaultPlay&) = delete;
  FaultPlay& operator=(const FaultPlay&) = delete;

  Result<FaultReport> Play() {
    const bool cut = setup_.action == FaultAction::kCut;
    if (cut) ZPP_RETURN_IF_ERROR(network_.StartSwitch());
    ranks_ = std::make_unique<RankProcesses>(
        setup_.ranks, [this](int rank) { return PlayRank(setup_, port_, rank, *stage_); });
    if (cut) ZPP_RETURN_IF_ERROR(PlugAll());
    ZPP_RETURN_IF_ERROR(AwaitRounds());
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 60'000));
    ZPP_RETURN_IF_ERROR(Strike());
    Judge();
    return report_;
  }

 private:
  Status PlugAll() {
    if (!AwaitAll(setup_.ranks, Deadline::In(10),
                  [&](size_t r) { return stage_->in_namespace[r] == 1; })) {
      return Internal("the ranks did not get into their namespaces");
    }
    for (int rank = 0; rank < setup_.ranks; ++rank)
      ZPP_RETURN_IF_ERROR(network_.Plug(rank, ranks_->pid(rank)));
    stage_->network_up = true;
    return {};
  }

  Status AwaitRounds() {
    const auto rounds = static_cast<int64_t>(2 + random_() % 20);
    if (AwaitAll(setup_.ranks, Deadline::In(40),
                 [&](size_t r) { return stage_->rounds[r] >= rounds; }))
      return {};
    std::string why;
    const auto outcomes = ranks_->Collect(Deadline::In(0));
    for (const RankOutcome& outcome : outcomes) why += "; " + outcome.ToString();
    return Internal("the ranks never got going" + why);
  }

  Status Strike() {
    const auto victim = static_cast<size_t>(report_.victim);
    stage_->victim = report_.victim;
    struck_ns_ = Now_ns();
    if (setup_.action == FaultAction::kCut) {
      report_.in_collective = stage_->in_collective[victim];
      ZPP_RETURN_IF_ERROR(network_.Cut(report_.victim));
      struck_ns_ = Now_ns();
      return {};
    }
    ranks_->Signal(report_.victim, setup_.action == FaultAction::kKill ? SIGKILL : SIGSTOP);
    if (setup_.action == FaultAction::kKill && !report_.zombie) ranks_->Reap(report_.victim);
    report_.in_collective = stage_->in_collective[victim];
    return {};
  }

  void Judge() {
    std::vector<int> survivors;
    for (int rank = 0; rank < setup_.ranks; ++rank) {
      if (rank != report_.victim) survivors.push_back(rank);
    }
    // Twice the deadline for the error, and time to start anew.
    ranks_->Hear(survivors, Deadline::In(2 * setup_.deadline_s + 30));
    if (setup_.action == FaultAction::kStop) ranks_->Signal(report_.victim, SIGCONT);
    ranks_->Hear({report_.victim}, Deadline::In(2 * setup_.deadline_s + 10));
    const auto outcomes = ranks_->Collect(Deadline::In(0));
    report_.first_s = std::numeric_limits<double>::infinity();
    for (int rank : survivors) JudgeSurvivor(rank, outcomes[static_cast<size_t>(rank)]);
    JudgeVictim(outcomes[static_cast<size_t>(report_.victim)]);
  }

  void Miss(int rank, const std::string& what) {
    report_.misses.push_back("rank " + std::to_string(rank) + ": " + what);
  }

  void JudgeSurvivor(int rank, const RankOutcome& outcome) {
    if (!outcome.ok()) return Miss(rank, outcome.ToString());
    const Json json = Json::parse(outcome.value);
    const double after_s =
        static_cast<double>(json.at("error_ns").get<int64_t>() - struck_ns_) * 1e-9;
    report_.first_s = std::min(report_.first_s, after_s);
    report_.last_s = std::max(report_.last_s, after_s);
    const std::string told =
        json.at("code").get<std::string>() + " " + json.at("message").get<std::string>();
    if (after_s < 0) Miss(rank, "failed before the fault: " + told);
    if (after_s > 2 * setup_.deadline_s)
      Miss(rank, "told after " + std::to_string(after_s) + " s: " + told);
    if (json.at("lost_rank") != report_.victim) Miss(rank, "did not name the lost rank: " + told);
    if (json.at("rebuilt") != "")
      Miss(rank, "could not start anew: " + json.at("rebuilt").get<std::string>());
  }

  void JudgeVictim(const RankOutcome& outcome) {
    if (setup_.action == FaultAction::kKill) {
      if (outcome.kind != RankOutcome::kSignalled)
        Miss(report_.victim, "was killed, but " + outcome.ToString());
      return;
    }
    // It is told as well, whatever it is told.
    if (!outcome.ok()) Miss(report_.victim, "(the victim) " + outcome.ToString());
  }

  const FaultSetup setup_;
  FaultStage* const stage_;
  std::mt19937_64 random_;
  uint16_t port_ = 0;
  CutNetwork network_;
  std::unique_ptr<RankProcesses> ranks_;
  int64_t struck_ns_ = 0;
  FaultReport report_;
};

}  // namespace

Result<FaultReport> RunFault(const FaultSetup& setup, int run) {
  if (setup.ranks < 2 || setup.ranks > FaultStage::kMaxRanks) {
    return InvalidArgument("ranks: expected 2 to " + std::to_string(FaultStage::kMaxRanks));
  }
  return FaultPlay(setup, run).Play();
}

}  // namespace zpp::test
