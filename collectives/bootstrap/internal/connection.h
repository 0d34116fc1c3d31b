// Frames over one non-blocking TCP socket.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/bootstrap/internal/fd.h"
#include "common/status.h"

namespace zpp::internal {

// What the ranks and the hub say to each other; bodies are described beside their writers.
enum class FrameType : uint8_t {
  kHello = 1,     // rank -> hub: who I am
  kAck,           // hub -> rank: you are noted, wait
  kRefuse,        // hub -> rank: a Status; the connection ends
  kWelcome,       // hub -> rank: all ranks are here
  kHeartbeat,     // both ways: I live
  kGather,        // rank -> hub: my blob of exchange n
  kGathered,      // hub -> rank: all blobs of exchange n
  kGatherFailed,  // hub -> rank: a Status for exchange n
  kReport,        // rank -> hub: I am stuck
  kVerdict,       // hub -> rank: a Status, for all
  kAbort,         // rank -> hub: I end this job
  kLeave,         // both ways: I close on purpose
};

struct Frame {
  FrameType type = FrameType::kHeartbeat;
  std::string body;
};

// On the wire: magic "ZPPC" (4), protocol version (1), type (1), zero (2), body length (4), body.
class Connection {
 public:
  static constexpr uint8_t kProtocol = 1;
  static constexpr size_t kHeader_bytes = 12;

  Connection() = default;
  // A body longer than `max_body_bytes` fails the connection before it is read.
  Connection(Fd fd, size_t max_body_bytes) : fd_(std::move(fd)), max_body_bytes_(max_body_bytes) {}

  bool open() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }
  void set_max_body_bytes(size_t bytes) { max_body_bytes_ = bytes; }

  // Queues a frame and sends what the socket takes now. An error says how the connection broke.
  Status Send(const Frame& frame);
  Status Flush();
  bool wants_write() const { return sent_ < out_.size(); }

  // Appends the frames that have arrived. kUnavailable at the end of the stream, kDataLoss for
  // bytes that are no frame; frames before the error are delivered.
  Status Receive(std::vector<Frame>* frames);
  // No more frames will be sent: the peer reads what is queued, then the end.
  void FinishSending();
  void Close() { fd_.Reset(); }

 private:
  Status Parse(std::vector<Frame>* frames);

  Fd fd_;
  size_t max_body_bytes_ = 0;
  std::string in_, out_;
  size_t sent_ = 0;
};

// A Status inside a frame.
std::string PackStatus(const Status& status);
Status UnpackStatus(std::string_view body);

}  // namespace zpp::internal
