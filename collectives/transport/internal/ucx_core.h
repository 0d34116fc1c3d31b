// The UCX objects behind a transport, and the batches in flight on them. Nothing outside
// collectives/transport/ucx* sees UCX.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/transport/internal/node_window.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/ucx_transport.h"
#include "common/status.h"

namespace zpp::internal {

struct UcxBatch;

// One posted operation; UCX holds a pointer to it until it completes.
struct UcxRequest {
  UcxBatch* batch = nullptr;
  int peer = -1;
  bool is_send = false;
  bool done = false;
  std::span<std::byte> out = {};  // of a receive
  StoreHint stores = StoreHint::kAuto;
  WindowRef ref = {};  // of a send that goes through the window
};

struct UcxCore;

struct UcxBatch {
  UcxCore* core = nullptr;
  Ticket ticket = 0;  // 0: free
  int pending = 0;
  std::vector<UcxRequest> requests;
};

struct UcxPeer {
  UcxCore* core = nullptr;
  int rank = -1;
  ucp_ep_h endpoint = nullptr;
  PeerWindow window = {};
};

// Owned by its transport until it fails. A failed core is abandoned: never given to UCX again,
// never freed, because UCX crashes or hangs when it tears down what has failed.
struct UcxCore {
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  int event_fd = -1;
  std::vector<UcxPeer> peers;
  std::unique_ptr<NodeWindow> window;  // null: nothing is shared
  std::vector<std::unique_ptr<UcxBatch>> batches;
  std::vector<size_t> free_batches;
  uint64_t next_serial = 1;
  bool closing = false;
  // The first failure that a callback saw.
  Status failure;

  void Note(Status why);
  void NoteUcx(int peer, ucs_status_t status, const char* doing);

  // Takes one from the pool, with room for `requests`.
  UcxBatch& NewBatch(size_t requests);
  UcxBatch* Find(Ticket ticket);
  void Release(UcxBatch& batch);
  size_t busy_batches() const { return batches.size() - free_batches.size(); }

  // The receives, then the sends of rank `self`. A failure is noted.
  void Post(UcxBatch& batch, std::span<const SendOp> sends, std::span<const RecvOp> recvs,
            int self);

 private:
  void PostRecv(UcxRequest& request, const RecvOp& op);
  void PostSend(UcxRequest& request, const SendOp& op, int self);
};

// Tags carry the sender's rank in their low 16 bits.
inline constexpr int kUcxTagBits = 48;
inline constexpr int kUcxMaxWorld = 1 << 16;

// Host or RDMA.
UcxProfile Resolved(UcxProfile profile);
// Context and worker with the settings of the profile (collectives/transport/README.md lists them).
Result<std::unique_ptr<UcxCore>> OpenUcx(UcxProfile profile, int world);
// The address that peers connect to: all transports, or those over a network only.
Result<std::string> UcxAddress(const UcxCore& core, bool net_only);
// An endpoint to `peer` of `address`.
Status ConnectUcx(UcxCore& core, int peer, const std::string& address);
// "posix", "tcp", "posix+tcp": what the endpoint moves data over.
std::string DescribeEndpoint(ucp_ep_h endpoint);
// Exchanges addresses with all ranks and connects to them. Ranks of another node are connected to
// by their network address alone. kMismatch names ranks whose UCX is of another version.
struct UcxNeighbourhood {
  bool windows = false;  // the memory of some rank of this node is mapped
  bool crowded = false;  // more ranks on this machine than cores that they may use
  std::string near,
      across;  // how a rank of this node, of another node is reached; empty when there is none
};
Result<UcxNeighbourhood> ConnectAllUcx(UcxCore& core, ControlPlane& control,
                                       const Topology& topology, Deadline deadline);
// Closes endpoints, worker and context after a clean barrier; gives up (and abandons) at the
// deadline.
void CloseUcx(std::unique_ptr<UcxCore> core, Deadline deadline);
// See UcxCore. Counted; see AbandonedUcxWorkers().
void AbandonUcx(std::unique_ptr<UcxCore> core);

}  // namespace zpp::internal
