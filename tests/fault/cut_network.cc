#include "tests/fault/cut_network.h"

#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace zpp::test {
namespace {

Status Shell(const std::string& command) {
  const std::string quiet = command + " 2>&1";
  FILE* out = popen(quiet.c_str(), "r");
  if (out == nullptr) return Internal("popen: " + std::string(strerror(errno)));
  std::string text;
  char chunk[512];
  while (fgets(chunk, sizeof chunk, out) != nullptr) text += chunk;
  if (pclose(out) == 0) return {};
  return Internal("'" + command + "' failed: " + text);
}

std::string In(pid_t pid) { return "nsenter -n -t " + std::to_string(pid) + " "; }

std::string PortOf(int rank) { return "port" + std::to_string(rank); }

}  // namespace

std::string CutNetwork::AddressOf(int rank) { return "10.77.0." + std::to_string(rank + 1); }

Status CutNetwork::EnterOwnNamespaces() {
  if (unshare(CLONE_NEWNET | CLONE_NEWIPC) == 0) return {};
  return Internal("cannot enter namespaces: " + std::string(strerror(errno)));
}

Status CutNetwork::StartSwitch() {
  int ready[2];
  if (pipe(ready) != 0) return Internal("pipe: " + std::string(strerror(errno)));
  switch_ = fork();
  if (switch_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ready[0]);
    const char answer = EnterOwnNamespaces().ok() ? 'y' : 'n';
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    close(ready[1]);
    for (;;) pause();
  }
  close(ready[1]);
  char answer = 'n';
  const bool heard = read(ready[0], &answer, 1) == 1;
  close(ready[0]);
  if (switch_ < 0 || !heard || answer != 'y')
    return Internal("the switch's namespace cannot be made");
  return Shell(In(switch_) + "sh -c 'ip link add br0 type bridge && ip link set br0 up'");
}

CutNetwork::~CutNetwork() {
  if (switch_ <= 0) return;
  kill(switch_, SIGKILL);
  waitpid(switch_, nullptr, 0);
}

Status CutNetwork::Plug(int rank, pid_t pid) {
  const std::string port = PortOf(rank);
  ZPP_RETURN_IF_ERROR(Shell(In(switch_) + "sh -c 'ip link add " + port +
                            " type veth peer name eth0 netns " + std::to_string(pid) +
                            " && ip link set " + port + " master br0 up'"));
  return Shell(In(pid) + "sh -c 'ip link set lo up && ip addr add " + AddressOf(rank) +
               "/24 dev eth0 && ip link set eth0 up'");
}

Status CutNetwork::AwaitLink(Deadline deadline) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  strncpy(request.ifr_name, "eth0", sizeof request.ifr_name - 1);
  bool running = false;
  while (!running && !deadline.expired()) {
    running = ioctl(fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_RUNNING) != 0;
    if (!running) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  close(fd);
  return running ? Status() : Status(StatusCode::kDeadlineExceeded, "eth0 did not come up");
}

Status CutNetwork::Cut(int rank) {
  return Shell(In(switch_) + "ip link set " + PortOf(rank) + " down");
}

}  // namespace zpp::test
