#include "collectives/transport/internal/ucx_core.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>

#include "collectives/transport/ucx_transport.h"
#include "common/log.h"

namespace zpp::internal {
namespace {

constexpr int kSlotBits = 20;  // of a ticket: which batch of the pool; above: a serial number

uint64_t UcxTag(Tag tag, int sender) { return (tag << 16) | static_cast<uint64_t>(sender); }

void Complete(UcxRequest& request) {
  request.done = true;
  --request.batch->pending;
}

// The reference that has come in the message's place; empty when it is a message.
std::optional<WindowRef> ReferenceIn(const UcxRequest& request, size_t got_bytes) {
  WindowRef ref;
  if (got_bytes != sizeof ref) return std::nullopt;
  std::memcpy(&ref, request.out.data(), sizeof ref);
  const UcxPeer& peer = request.batch->core->peers[static_cast<size_t>(request.peer)];
  return peer.window.Owns(ref) ? std::optional(ref) : std::nullopt;
}

void Received(UcxRequest& request, ucs_status_t status, size_t got_bytes) {
  UcxCore& core = *request.batch->core;
  const auto wrong_length = [&](const std::string& got) {
    core.Note(DataLoss("rank " + std::to_string(request.peer) + " sent " + got + " bytes where " +
                       std::to_string(request.out.size()) + " were due"));
  };
  if (status == UCS_ERR_MESSAGE_TRUNCATED) return wrong_length("more");
  if (status != UCS_OK) return core.NoteUcx(request.peer, status, "receiving from");
  if (const auto ref = ReferenceIn(request, got_bytes)) {
    const PeerWindow& window = core.peers[static_cast<size_t>(request.peer)].window;
    if (ref->bytes != request.out.size()) return wrong_length(std::to_string(ref->bytes));
    if (!window.Take(*ref, request.out, request.stores)) {
      return core.Note(DataLoss("rank " + std::to_string(request.peer) +
                                " sent a reference to no message in its memory"));
    }
  } else if (got_bytes != request.out.size()) {
    return wrong_length(std::to_string(got_bytes));
  }
  Complete(request);
}

void OnReceived(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* user) {
  Received(*static_cast<UcxRequest*>(user), status, info->length);
  ucp_request_free(request);
}

void Sent(UcxRequest& request, ucs_status_t status) {
  if (status != UCS_OK) {
    request.batch->core->NoteUcx(request.peer, status, "sending to");
  } else {
    Complete(request);
  }
}

void OnSent(void* request, ucs_status_t status, void* user) {
  Sent(*static_cast<UcxRequest*>(user), status);
  ucp_request_free(request);
}

// Inside progress: the endpoint must not be touched here, so it is only noted.
void OnPeerError(void* user, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  const auto* peer = static_cast<const UcxPeer*>(user);
  peer->core->NoteUcx(peer->rank, status, "the connection to");
}

// Reachable for ever, so that leak checkers see a purpose.
struct Graveyard {
  std::mutex mutex;
  std::vector<std::unique_ptr<UcxCore>> cores;
};
Graveyard& TheGraveyard() {
  static auto* graveyard = new Graveyard;
  return *graveyard;
}

// Progresses until the request is done, or the deadline.
bool Finish(UcxCore& core, ucs_status_ptr_t request, Deadline deadline) {
  if (!UCS_PTR_IS_PTR(request)) return true;
  while (ucp_request_check_status(request) == UCS_INPROGRESS) {
    if (deadline.expired()) return false;
    if (ucp_worker_progress(core.worker) == 0) ::sched_yield();
  }
  ucp_request_free(request);
  return true;
}

}  // namespace

void UcxCore::Note(Status why) {
  if (closing || !failure.ok()) return;
  failure = std::move(why);
}

void UcxCore::NoteUcx(int peer, ucs_status_t status, const char* doing) {
  Note(Status::PeerLost(peer, std::string(doing) + " rank " + std::to_string(peer) +
                                  " failed: " + ucs_status_string(status)));
}

UcxBatch& UcxCore::NewBatch(size_t requests) {
  if (free_batches.empty()) {
    free_batches.push_back(batches.size());
    batches.push_back(std::make_unique<UcxBatch>());
  }
  const size_t slot = free_batches.back();
  free_batches.pop_back();
  UcxBatch& batch = *batches[slot];
  batch.core = this;
  batch.ticket = (next_serial++ << kSlotBits) | slot;
  batch.pending = static_cast<int>(requests);
  batch.requests.assign(requests, UcxRequest{.batch = &batch});
  return batch;
}

UcxBatch* UcxCore::Find(Ticket ticket) {
  const size_t slot = ticket & ((size_t{1} << kSlotBits) - 1);
  if (ticket == 0 || slot >= batches.size() || batches[slot]->ticket != ticket) return nullptr;
  return batches[slot].get();
}

void UcxCore::Release(UcxBatch& batch) {
  free_batches.push_back(batch.ticket & ((size_t{1} << kSlotBits) - 1));
  batch.ticket = 0;
}

void UcxCore::Post(UcxBatch& batch, std::span<const SendOp> sends, std::span<const RecvOp> recvs,
                   int self) {
  size_t index = 0;
  for (const RecvOp& op : recvs) PostRecv(batch.requests[index++], op);
  for (const SendOp& op : sends) PostSend(batch.requests[index++], op, self);
  if (window != nullptr) window->EndBatch();
}

void UcxCore::PostRecv(UcxRequest& request, const RecvOp& op) {
  request.peer = op.peer;
  request.out = op.data;
  request.stores = op.stores;
  ucp_request_param_t params{};
  // The callback in any case: it alone tells how long a message is that was here already.
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv = OnReceived;
  params.user_data = &request;
  const auto posted = ucp_tag_recv_nbx(worker, op.data.data(), op.data.size(),
                                       UcxTag(op.tag, op.peer), ~uint64_t{0}, &params);
  if (UCS_PTR_IS_ERR(posted)) NoteUcx(op.peer, UCS_PTR_STATUS(posted), "receiving from");
}

void UcxCore::PostSend(UcxRequest& request, const SendOp& op, int self) {
  request.peer = op.peer;
  request.is_send = true;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = OnSent;
  params.user_data = &request;
  std::span<const std::byte> wire = op.data;
  if (window != nullptr && window->MappedBy(op.peer)) {
    if (const auto ref = window->Share(op.data, op.stores)) {
      request.ref = *ref;
      wire = std::as_bytes(std::span(&request.ref, 1));
    }
  }
  const auto posted = ucp_tag_send_nbx(peers[static_cast<size_t>(op.peer)].endpoint, wire.data(),
                                       wire.size(), UcxTag(op.tag, self), &params);
  if (!UCS_PTR_IS_PTR(posted)) Sent(request, UCS_PTR_STATUS(posted));
}

Result<std::string> UcxAddress(const UcxCore& core, bool net_only) {
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
  attributes.address_flags = net_only ? static_cast<uint32_t>(UCP_WORKER_ADDRESS_FLAG_NET_ONLY) : 0;
  if (const ucs_status_t status = ucp_worker_query(core.worker, &attributes); status != UCS_OK) {
    return Internal(std::string("ucp_worker_query: ") + ucs_status_string(status));
  }
  std::string address(reinterpret_cast<const char*>(attributes.address), attributes.address_length);
  ucp_worker_release_address(core.worker, attributes.address);
  return address;
}

Status ConnectUcx(UcxCore& core, int peer, const std::string& address) {
  UcxPeer& entry = core.peers[static_cast<size_t>(peer)];
  entry = {.core = &core, .rank = peer};
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnPeerError;
  params.err_handler.arg = &entry;
  const ucs_status_t status = ucp_ep_create(core.worker, &params, &entry.endpoint);
  if (status == UCS_OK) return {};
  return {StatusCode::kUnavailable,
          "no way to rank " + std::to_string(peer) + ": " + ucs_status_string(status)};
}

std::string DescribeEndpoint(ucp_ep_h endpoint) {
  char* text = nullptr;
  size_t size = 0;
  FILE* memory = ::open_memstream(&text, &size);
  if (memory == nullptr) return "?";
  ucp_ep_print_info(endpoint, memory);
  std::fclose(memory);
  const std::string info(text, size);
  std::free(text);
  // "#   lane[0]:  4:posix/memory.0 md[3] -> ...": the transport stands between ':' and '/'.
  std::string found;
  for (size_t at = info.find("lane["); at != std::string::npos; at = info.find("lane[", at + 1)) {
    const size_t slash = info.find('/', at);
    if (slash == std::string::npos) break;
    const size_t colon = info.rfind(':', slash);
    const std::string name = info.substr(colon + 1, slash - colon - 1);
    if (("+" + found + "+").find("+" + name + "+") != std::string::npos) continue;
    found += (found.empty() ? "" : "+") + name;
  }
  return found.empty() ? "?" : found;
}

void CloseUcx(std::unique_ptr<UcxCore> core, Deadline deadline) {
  core->closing = true;
  std::vector<ucs_status_ptr_t> closes;
  for (UcxPeer& peer : core->peers) {
    if (peer.endpoint == nullptr) continue;
    const ucp_request_param_t params{};
    closes.push_back(ucp_ep_close_nbx(peer.endpoint, &params));
    peer.endpoint = nullptr;
  }
  for (const ucs_status_ptr_t close : closes) {
    if (!Finish(*core, close, deadline)) return AbandonUcx(std::move(core));
  }
  if (core->worker != nullptr) ucp_worker_destroy(core->worker);
  if (core->context != nullptr) ucp_cleanup(core->context);
}

void AbandonUcx(std::unique_ptr<UcxCore> core) {
  core->window.reset();
  for (UcxPeer& peer : core->peers) peer.window = {};
  Graveyard& graveyard = TheGraveyard();
  const std::lock_guard lock(graveyard.mutex);
  graveyard.cores.push_back(std::move(core));
  Log(LogLevel::kInfo, "a UCX worker is abandoned, " + std::to_string(graveyard.cores.size()) +
                           " in this process so far");
}

}  // namespace zpp::internal

namespace zpp {

int AbandonedUcxWorkers() {
  internal::Graveyard& graveyard = internal::TheGraveyard();
  const std::lock_guard lock(graveyard.mutex);
  return static_cast<int>(graveyard.cores.size());
}

}  // namespace zpp
