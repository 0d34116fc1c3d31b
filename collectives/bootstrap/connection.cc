#include "collectives/bootstrap/internal/connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "collectives/bootstrap/internal/bytes.h"

namespace zpp::internal {
namespace {

constexpr uint32_t kMagic = 0x4350505a;  // "ZPPC"

Status Broken(int error) {
  return {StatusCode::kUnavailable, std::string("its connection broke: ") + std::strerror(error)};
}

}  // namespace

Status Connection::Send(const Frame& frame) {
  ByteWriter header;
  header.Put(kMagic).Put(kProtocol).Put(static_cast<uint8_t>(frame.type)).Put(uint16_t{0});
  header.Put(static_cast<uint32_t>(frame.body.size()));
  out_.append(header.Take()).append(frame.body);
  return Flush();
}

Status Connection::Flush() {
  while (open() && wants_write()) {
    const ssize_t wrote =
        ::send(fd(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (wrote < 0) return Broken(errno);
    sent_ += static_cast<size_t>(wrote);
  }
  out_.clear();
  sent_ = 0;
  return {};
}

Status Connection::Receive(std::vector<Frame>* frames) {
  std::array<char, 65536> piece;
  // Bounded: one peer that never stops sending must not keep the others waiting.
  for (int reads = 0; open() && reads < 64; ++reads) {
    const ssize_t got = ::recv(fd(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (got < 0) return Broken(errno);
    if (got == 0) return {StatusCode::kUnavailable, "it closed its control connection"};
    in_.append(piece.data(), static_cast<size_t>(got));
    ZPP_RETURN_IF_ERROR(Parse(frames));
  }
  return {};
}

Status Connection::Parse(std::vector<Frame>* frames) {
  size_t at = 0;
  while (in_.size() - at >= kHeader_bytes) {
    ByteReader header(std::string_view(in_).substr(at, kHeader_bytes));
    if (header.Get<uint32_t>() != kMagic)
      return DataLoss("it does not speak zpp's control protocol");
    if (const auto version = header.Get<uint8_t>(); version != kProtocol) {
      return DataLoss("it speaks version " + std::to_string(version) +
                      " of the control protocol, this is version " + std::to_string(kProtocol));
    }
    const auto type = header.Get<uint8_t>();
    header.Get<uint16_t>();
    const auto size = header.Get<uint32_t>();
    if (type < static_cast<uint8_t>(FrameType::kHello) ||
        type > static_cast<uint8_t>(FrameType::kLeave) || size > max_body_bytes_) {
      return DataLoss("it sent a control frame of type " + std::to_string(type) + " and " +
                      std::to_string(size) + " bytes");
    }
    if (in_.size() - at - kHeader_bytes < size) break;
    frames->push_back({static_cast<FrameType>(type), in_.substr(at + kHeader_bytes, size)});
    at += kHeader_bytes + size;
  }
  in_.erase(0, at);
  return {};
}

void Connection::FinishSending() {
  if (open()) ::shutdown(fd(), SHUT_WR);
}

std::string PackStatus(const Status& status) {
  ByteWriter out;
  out.Put(static_cast<uint8_t>(status.code())).Put(static_cast<int32_t>(status.lost_rank()));
  return out.PutString(status.message()).Take();
}

Status UnpackStatus(std::string_view body) {
  ByteReader in(body);
  const auto code = in.Get<uint8_t>();
  const auto lost = in.Get<int32_t>();
  std::string message = in.GetString();
  if (!in.done() || code == 0 || code > static_cast<uint8_t>(StatusCode::kInternal)) {
    return DataLoss("rank 0 sent a status that cannot be read");
  }
  const auto known = static_cast<StatusCode>(code);
  if (known == StatusCode::kPeerLost) return Status::PeerLost(lost, std::move(message));
  return {known, std::move(message)};
}

}  // namespace zpp::internal
