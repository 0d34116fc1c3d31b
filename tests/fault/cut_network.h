// Ranks in network and IPC namespaces of their own, joined by a switch whose links can be cut.
// Everything lives in the namespaces of the processes: nothing is left when they are gone, however
// they end. Needs root.
#pragma once

#include <sys/types.h>

#include <string>

#include "common/deadline.h"
#include "common/status.h"

namespace zpp::test {

class CutNetwork {
 public:
  CutNetwork() = default;
  ~CutNetwork();  // ends the switch
  CutNetwork(const CutNetwork&) = delete;
  CutNetwork& operator=(const CutNetwork&) = delete;

  // In the parent, before it has threads: a process that keeps the switch's namespace open.
  Status StartSwitch();
  // In a rank, first of all: into namespaces of its own.
  static Status EnterOwnNamespaces();
  // In the parent, when `pid` has entered its own: a link from it to the switch, address
  // AddressOf(rank).
  Status Plug(int rank, pid_t pid);
  // In a rank: until its link is up.
  static Status AwaitLink(Deadline deadline);
  // In the parent: the rank's link goes down at the switch's end, without a word to anybody.
  Status Cut(int rank);

  static std::string AddressOf(int rank);

 private:
  pid_t switch_ = -1;
};

}  // namespace zpp::test
