#include "tests/harness/rank_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/harness/shm_files.h"

namespace zpp::test {
namespace {

using Json = nlohmann::json;

std::string Serialize(const Result<std::string>& result) {
  const Status status = result.ok() ? Status() : result.status();
  const Json json = {{"code", static_cast<int>(status.code())},
                     {"lost_rank", status.lost_rank()},
                     {"message", status.message()},
                     {"value", result.ok() ? *result : ""}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

[[noreturn]] void RunChild(int rank, const RankBody& body, int pipe_fd, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above
  const std::string bytes = Serialize(body(rank));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(pipe_fd, bytes.data() + done, bytes.size() - done);
    if (n <= 0 && errno != EINTR) _exit(1);
    if (n > 0) done += static_cast<size_t>(n);
  }
  fflush(nullptr);
  _exit(0);
}

}  // namespace

RankProcesses::RankProcesses(int world, const RankBody& body) : ranks_(static_cast<size_t>(world)) {
  fflush(nullptr);
  const pid_t parent = getpid();
  for (int rank = 0; rank < world; ++rank) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      perror("pipe2");
      std::abort();
    }
    const pid_t pid = fork();
    if (pid < 0) {
      perror("fork");
      std::abort();
    }
    if (pid == 0) {
      close(ends[0]);
      for (const Rank& sibling : ranks_) {
        if (sibling.pipe >= 0) close(sibling.pipe);
      }
      RunChild(rank, body, ends[1], parent);
    }
    close(ends[1]);
    ranks_[static_cast<size_t>(rank)].pid = pid;
    ranks_[static_cast<size_t>(rank)].pipe = ends[0];
  }
}

RankProcesses::~RankProcesses() {
  KillAndReapAll();
  for (const Rank& rank : ranks_) close(rank.pipe);
  RemoveShmFiles(segments_);
}

void RankProcesses::Signal(int rank, int signal) {
  const Rank& target = ranks_[static_cast<size_t>(rank)];
  for (std::string& name : ShmFilesOf(target.pid)) segments_.push_back(std::move(name));
  if (!target.reaped) kill(target.pid, signal);
}

void RankProcesses::Reap(int rank) { Wait(ranks_[static_cast<size_t>(rank)]); }

void RankProcesses::Wait(Rank& rank) {
  if (rank.reaped) return;
  while (waitpid(rank.pid, &rank.wait_status, 0) < 0 && errno == EINTR) {
  }
  rank.reaped = true;
}

void RankProcesses::Read(Rank& rank) {
  char chunk[4096];
  const ssize_t n = read(rank.pipe, chunk, sizeof chunk);
  if (n > 0) rank.bytes.append(chunk, static_cast<size_t>(n));
  if (n > 0 || (n < 0 && errno == EINTR)) return;
  rank.closed = true;
  rank.heard_at = Deadline::Clock::now();
}

bool RankProcesses::Hear(const std::vector<int>& ranks, Deadline deadline) {
  for (;;) {
    std::vector<pollfd> polled;
    std::vector<Rank*> owners;
    for (int r : ranks) {
      Rank& rank = ranks_[static_cast<size_t>(r)];
      if (rank.closed) continue;
      polled.push_back({rank.pipe, POLLIN, 0});
      owners.push_back(&rank);
    }
    if (polled.empty()) return true;
    if (deadline.expired()) return false;
    poll(polled.data(), polled.size(), deadline.remaining_ms(1000));
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents != 0) Read(*owners[i]);
    }
  }
}

std::vector<RankOutcome> RankProcesses::Collect(Deadline deadline) {
  std::vector<int> all(ranks_.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  Hear(all, deadline);
  KillAndReapAll();
  std::vector<RankOutcome> outcomes;
  for (const Rank& rank : ranks_) outcomes.push_back(Outcome(rank));
  return outcomes;
}

void RankProcesses::KillAndReapAll() {
  for (Rank& rank : ranks_) {
    if (rank.reaped || rank.closed) continue;
    rank.killed_late = true;
    for (std::string& name : ShmFilesOf(rank.pid)) segments_.push_back(std::move(name));
    kill(rank.pid, SIGKILL);
  }
  for (Rank& rank : ranks_) Wait(rank);
}

RankOutcome RankProcesses::Outcome(const Rank& rank) const {
  RankOutcome outcome;
  const Json json = Json::parse(rank.bytes, nullptr, /*allow_exceptions=*/false);
  if (!json.is_discarded() && WIFEXITED(rank.wait_status) && WEXITSTATUS(rank.wait_status) == 0) {
    outcome.kind = RankOutcome::kReturned;
    const auto code = static_cast<StatusCode>(json.at("code").get<int>());
    const std::string message = json.at("message");
    outcome.status = code == StatusCode::kPeerLost ? Status::PeerLost(json.at("lost_rank"), message)
                                                   : Status(code, message);
    outcome.value = json.at("value");
  } else if (rank.killed_late) {
    outcome.kind = RankOutcome::kTimedOut;
  } else if (WIFSIGNALED(rank.wait_status)) {
    outcome.kind = RankOutcome::kSignalled;
    outcome.detail = WTERMSIG(rank.wait_status);
  } else {
    outcome.kind = RankOutcome::kExited;
    outcome.detail = WEXITSTATUS(rank.wait_status);
  }
  return outcome;
}

}  // namespace zpp::test
