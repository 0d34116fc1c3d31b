#include "cli/launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/command.h"
#include "common/deadline.h"
#include "common/env.h"
#include "common/log.h"

namespace zpp::cli {
namespace {

constexpr double kKillAfter_s = 2;  // between SIGTERM and SIGKILL

struct Child {
  pid_t pid = -1;
  int messages_fd = -1;  // what it wrote to standard error; -1: it shares ours
  int code = kExitOk;    // once it has ended
};

// A port that was free a moment ago; 0 when there is none.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  int port = 0;
  if (fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
    port = ntohs(address.sin_port);
  }
  if (fd >= 0) close(fd);
  return port;
}

void SetRankVariables(int rank, int world, int port) {
  const auto set = [](const char* name, int value) {
    setenv(name, std::to_string(value).c_str(), 1);
  };
  set("RANK", rank);
  set("LOCAL_RANK", rank);
  set("WORLD_SIZE", world);
  set("LOCAL_WORLD_SIZE", world);
  set("GROUP_RANK", 0);
  set("MASTER_PORT", port);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  unsetenv(std::string(Describe(EnvVar::kCommId).name).c_str());  // it would lead elsewhere
}

[[noreturn]] void BecomeRank(const LaunchSpec& spec, int rank, int messages_fd, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitFailed);  // it died before the line above
  setpgid(0, 0);  // the terminal's Ctrl-C reaches the launcher alone, which passes it on once
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (rank != 0) {
    const int nowhere = open("/dev/null", O_WRONLY);
    if (nowhere >= 0) dup2(nowhere, STDOUT_FILENO);
    if (messages_fd >= 0) dup2(messages_fd, STDERR_FILENO);
  }
  const char* program = spec.program.empty() ? "/proc/self/exe" : spec.program.c_str();
  std::vector<char*> argv = {const_cast<char*>("zpp")};
  for (const std::string& arg : spec.args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  execv(program, argv.data());
  std::fprintf(stderr, "zpp: cannot start %s: %s\n", program, std::strerror(errno));
  _exit(kExitFailed);
}

int CodeOf(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

// Whoever asks for log lines wants those of all ranks.
bool AllMayTalk() {
  return EnvIsSet(EnvVar::kLog) && ParseLogLevel(GetEnv(EnvVar::kLog)).has_value();
}

// The ranks that were started, and how they end.
class Family {
 public:
  bool Start(const LaunchSpec& spec, int port);
  // Waits for a signal until `deadline`, then reaps who has ended. Returns a signal that asks to
  // stop, or 0.
  int Step(Deadline deadline);
  void Signal(int number);
  bool alive() const;
  int exit_code() const { return first_code_; }
  void ShowFirstFailure() const;
  void Close();

 private:
  void Reap();
  sigset_t awaited_{};
  std::vector<Child> children_;
  int first_code_ = kExitOk;
  int first_rank_ = -1;
  bool ending_ = false;  // they die because we want it
};

bool Family::Start(const LaunchSpec& spec, int port) {
  sigemptyset(&awaited_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&awaited_, number);
  sigprocmask(SIG_BLOCK, &awaited_, nullptr);
  std::fflush(nullptr);  // or each child would print it again
  const pid_t parent = getpid();
  for (int rank = 0; rank < spec.ranks; ++rank) {
    Child child;
    if (rank != 0 && !AllMayTalk()) child.messages_fd = memfd_create("zpp-messages", MFD_CLOEXEC);
    child.pid = fork();
    if (child.pid == 0) {
      SetRankVariables(rank, spec.ranks, port);
      BecomeRank(spec, rank, child.messages_fd, parent);
    }
    if (child.pid < 0) {
      std::fprintf(stderr, "zpp: cannot start rank %d: %s\n", rank, std::strerror(errno));
      first_code_ = kExitFailed;
      return false;
    }
    children_.push_back(child);
  }
  return true;
}

int Family::Step(Deadline deadline) {
  const double left_s = std::min(deadline.remaining_s(), 1.0);
  timespec wait{};
  wait.tv_nsec = static_cast<long>(std::min(left_s, 0.999) * 1e9);
  const int number = sigtimedwait(&awaited_, nullptr, &wait);
  Reap();
  return number > 0 && number != SIGCHLD ? number : 0;
}

void Family::Reap() {
  for (size_t rank = 0; rank < children_.size(); ++rank) {
    Child& child = children_[rank];
    int wait_status = 0;
    if (child.pid <= 0 || waitpid(child.pid, &wait_status, WNOHANG) != child.pid) continue;
    child.pid = 0;
    child.code = CodeOf(wait_status);
    if (child.code == kExitOk || first_code_ != kExitOk) continue;
    first_code_ = child.code;
    first_rank_ = static_cast<int>(rank);
    if (WIFSIGNALED(wait_status) && !ending_) {
      std::fprintf(stderr, "zpp: rank %zu was killed by signal %d\n", rank, WTERMSIG(wait_status));
    }
  }
}

void Family::Signal(int number) {
  ending_ = true;
  for (const Child& child : children_) {
    if (child.pid > 0) kill(child.pid, number);
  }
}

bool Family::alive() const {
  for (const Child& child : children_) {
    if (child.pid > 0) return true;
  }
  return false;
}

void Family::ShowFirstFailure() const {
  if (first_rank_ <= 0 || children_[first_rank_].messages_fd < 0) return;
  // What is bad for all has been said by rank 0, which is heard.
  if (first_code_ == kExitUsage && children_[0].code == kExitUsage) return;
  const int fd = children_[first_rank_].messages_fd;
  char text[4096];
  const ssize_t got = pread(fd, text, sizeof text, 0);
  if (got > 0) std::fprintf(stderr, "[rank %d] %.*s", first_rank_, static_cast<int>(got), text);
}

void Family::Close() {
  for (Child& child : children_) {
    if (child.messages_fd >= 0) close(child.messages_fd);
    child.messages_fd = -1;
  }
}

// Asks the ranks to end, then makes them.
void End(Family* family) {
  family->Signal(SIGTERM);
  const Deadline patience = Deadline::In(kKillAfter_s);
  while (family->alive() && !patience.expired()) family->Step(patience);
  family->Signal(SIGKILL);
  while (family->alive()) family->Step(Deadline::In(0.1));
}

}  // namespace

int Launch(const LaunchSpec& spec) {
  const int port = FreePort();
  if (port == 0)
    return Report({StatusCode::kUnavailable, "no free port on the loopback interface"});
  Family family;
  const bool started = family.Start(spec, port);
  int stop_signal = 0;
  Deadline patience = Deadline::Never();
  while (started && family.alive() && stop_signal == 0 && !patience.expired()) {
    stop_signal = family.Step(patience);
    if (family.exit_code() != kExitOk && patience.never()) patience = Deadline::In(spec.grace_s);
  }
  if (family.alive()) End(&family);
  if (stop_signal == 0) family.ShowFirstFailure();
  family.Close();
  return stop_signal != 0 ? 128 + stop_signal : family.exit_code();
}

std::vector<std::string> WithoutRanksFlag(const std::vector<std::string>& args) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--ranks") {
      ++i;
    } else if (args[i].rfind("--ranks=", 0) != 0) {
      kept.push_back(args[i]);
    }
  }
  return kept;
}

}  // namespace zpp::cli
