// TCP sockets for the control plane: numeric or named hosts, IPv4 and IPv6, never blocking without
// a deadline (except the name service, which has its own).
#pragma once

#include <cstdint>
#include <string>

#include "collectives/bootstrap/internal/fd.h"
#include "common/deadline.h"
#include "common/status.h"

namespace zpp::internal {

struct HostPort {
  std::string host;
  uint16_t port = 0;
};
// "node1:29500", "10.0.0.1:29500", "[::1]:29500".
Result<HostPort> ParseHostPort(const std::string& text);
std::string ToString(const HostPort& where);

// Port 0: any free one. When `host` is no address of this machine (behind a translated address),
// all addresses. kUnavailable when the port is taken.
Result<Fd> Listen(const HostPort& where);
Result<uint16_t> LocalPort(int fd);

// A connected, non-blocking socket. kUnavailable when nobody answers (yet).
Result<Fd> Connect(const HostPort& where, Deadline deadline);
// An accepted, non-blocking socket; invalid when none waits.
Fd Accept(int listener);
// No delay for small frames; an unacknowledged byte fails the connection after `user_timeout_s`.
void TuneSocket(int fd, double user_timeout_s);

// The address other hosts reach this one by: that of ZPP_SOCKET_IFNAME, else of the first interface
// that is up and no loopback, else loopback.
Result<std::string> AddressToAdvertise();
// Of a numeric address or a host name that resolves to one.
bool IsLoopback(const std::string& host);

}  // namespace zpp::internal
