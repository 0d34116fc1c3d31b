// The only thing a new fabric implements: batches of tagged point-to-point messages, started and
// waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/buffer.h"
#include "common/deadline.h"
#include "common/status.h"
#include "quant/codec.h"

namespace zpp {

// Unique per (sender, receiver) while a message is in flight. MakeTag() in collectives/exec builds
// them. Below 2^48: the rest of a word is the transport's, for the sender.
using Tag = uint64_t;
inline constexpr int kTagBits = 48;

struct SendOp {
  int peer = -1;
  Tag tag = 0;
  std::span<const std::byte> data;
  StoreHint stores = StoreHint::kAuto;  // advice for a transport that copies the message itself
};
struct RecvOp {
  int peer = -1;
  Tag tag = 0;
  std::span<std::byte> data;  // exactly as long as the message; another length is kDataLoss,
                              // nothing beyond is written
  StoreHint stores = StoreHint::kAuto;  // as of a send
};

// Names a started batch. 0 is never one.
using Ticket = uint64_t;

struct TransportInfo {
  std::string name;            // "in-process", "ucx 1.13.1 (posix,tcp,self)"
  int64_t best_message_bytes;  // messages of about this size use the fabric best
  bool stream_ordered =
      false;  // completion is ordered on a device stream; nothing waits on the host
};

// Contract, held by one conformance suite over all transports:
// - One thread calls Start, Wait, Test, Progress; Abort may come from any thread.
// - Start never blocks and posts the receives before the sends. Memory of a batch stays the
// caller's, untouched by him,
//   until its Wait or Test says that it is complete (or failed).
// - Messages meet by (peer, tag). Empty messages are delivered like others. Self-sends are not
// allowed.
// - The first failure sticks: every later call returns it at once, and after it no call touches the
// caller's memory.
// - A batch that fails, or whose deadline passes, fails the transport; the Status names the lost
// rank when it is known,
//   otherwise the message names the ranks still owed.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual TransportInfo info() const = 0;

  virtual Result<Ticket> Start(std::span<const SendOp> sends, std::span<const RecvOp> recvs) = 0;
  // All arrived and all sent, or why not. A ticket is waited for once (by Wait, or by Test
  // returning true).
  virtual Status Wait(Ticket ticket, Deadline deadline) = 0;
  // Wait without waiting: true when complete. Moves bytes.
  virtual Result<bool> Test(Ticket ticket) = 0;
  // Bytes move while the rank computes: cheap, called between pieces of work.
  virtual void Progress() = 0;
  // Wakes every blocked call, which returns `why`; so does every later call. Idempotent, the first
  // reason wins.
  virtual void Abort(Status why) = 0;
  // Wire memory: heap unless the fabric has better. 64-byte aligned. Released before the transport.
  virtual Result<Buffer> Allocate(size_t bytes) { return Buffer::Allocate(bytes); }
  // Meets all ranks, then lets go of the peers. Without it the destructor abandons what a peer may
  // still need.
  virtual Status Shutdown(Deadline deadline) = 0;
};

}  // namespace zpp
