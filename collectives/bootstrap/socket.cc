#include "collectives/bootstrap/internal/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "common/env.h"

namespace zpp::internal {
namespace {

std::string ErrorText(int error) { return std::strerror(error); }

using AddrInfo = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<AddrInfo> Resolve(const HostPort& where, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(where.host.empty() ? nullptr : where.host.c_str(),
                                  std::to_string(where.port).c_str(), &hints, &found);
  if (error != 0) {
    return Status(StatusCode::kNotFound,
                  "cannot resolve the host '" + where.host + "': " + ::gai_strerror(error));
  }
  return AddrInfo(found, &::freeaddrinfo);
}

Fd NewSocket(int family) {
  return Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// 0 or an errno.
int BindAndListen(const addrinfo& address, Fd* out) {
  Fd fd = NewSocket(address.ai_family);
  if (!fd.valid()) return errno;
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), address.ai_addr, address.ai_addrlen) != 0) return errno;
  if (::listen(fd.get(), SOMAXCONN) != 0) return errno;
  *out = std::move(fd);
  return 0;
}

// 0 or an errno.
int FinishConnect(int fd, Deadline deadline) {
  for (;;) {
    pollfd waited{.fd = fd, .events = POLLOUT, .revents = 0};
    const int ready = ::poll(&waited, 1, deadline.remaining_ms(1000));
    if (ready < 0 && errno != EINTR) return errno;
    if (ready > 0) break;
    if (deadline.expired()) return ETIMEDOUT;
  }
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

int TryConnect(const addrinfo& address, Deadline deadline, Fd* out) {
  Fd fd = NewSocket(address.ai_family);
  if (!fd.valid()) return errno;
  if (::connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (const int error = FinishConnect(fd.get(), deadline); error != 0) return error;
  }
  *out = std::move(fd);
  return 0;
}

std::string NumericHost(const sockaddr* address) {
  char text[NI_MAXHOST] = {};
  const socklen_t size =
      address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text;
}

bool IsLoopbackAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (address->sa_family != AF_INET6) return false;
  sockaddr_in6 v6{};
  std::memcpy(&v6, address, sizeof v6);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

bool IsLinkLocal6(const sockaddr* address) {
  if (address->sa_family != AF_INET6) return false;
  sockaddr_in6 v6{};
  std::memcpy(&v6, address, sizeof v6);
  return IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);
}

// Smaller is better; -1: of no use.
int Rank(const ifaddrs& one, const std::string& wanted) {
  if (one.ifa_addr == nullptr || (one.ifa_flags & IFF_UP) == 0) return -1;
  const int family = one.ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) return -1;
  if (IsLinkLocal6(one.ifa_addr)) return -1;
  if (!wanted.empty() && wanted != one.ifa_name) return -1;
  return (IsLoopbackAddress(one.ifa_addr) ? 2 : 0) + (family == AF_INET6 ? 1 : 0);
}

}  // namespace

std::string ToString(const HostPort& where) {
  const bool v6 = where.host.find(':') != std::string::npos;
  return (v6 ? "[" + where.host + "]" : where.host) + ":" + std::to_string(where.port);
}

Result<HostPort> ParseHostPort(const std::string& text) {
  const auto bad = [&] {
    return InvalidArgument("'" + text + "' is not host:port with a port of 1 to 65535");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad();
  HostPort where{.host = text.substr(0, colon), .port = 0};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, where.port);
  if (error != std::errc() || stop != end || where.port == 0) return bad();
  if (where.host.front() == '[' && where.host.back() == ']') {
    where.host = where.host.substr(1, where.host.size() - 2);
  } else if (where.host.find(':') != std::string::npos) {
    return bad();  // an IPv6 address needs brackets
  }
  if (where.host.empty()) return bad();
  return where;
}

Result<Fd> Listen(const HostPort& where) {
  ZPP_ASSIGN_OR_RETURN(const AddrInfo list, Resolve(where, AI_PASSIVE));
  Fd fd;
  int error = 0;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    error = BindAndListen(*one, &fd);
    if (error == 0) return fd;
  }
  if (error == EADDRNOTAVAIL && !where.host.empty())
    return Listen({.host = "", .port = where.port});
  return Status(StatusCode::kUnavailable,
                "cannot listen on " + ToString(where) + ": " + ErrorText(error));
}

Result<uint16_t> LocalPort(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return Internal("getsockname: " + ErrorText(errno));
  }
  if (storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

Result<Fd> Connect(const HostPort& where, Deadline deadline) {
  ZPP_ASSIGN_OR_RETURN(const AddrInfo list, Resolve(where, 0));
  Fd fd;
  int error = 0;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    error = TryConnect(*one, deadline, &fd);
    if (error == 0) return fd;
  }
  return Status(StatusCode::kUnavailable, ToString(where) + ": " + ErrorText(error));
}

Fd Accept(int listener) {
  return Fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

void TuneSocket(int fd, double user_timeout_s) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const unsigned timeout_ms = static_cast<unsigned>(std::clamp(user_timeout_s * 1e3, 100.0, 1e9));
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

Result<std::string> AddressToAdvertise() {
  const std::string wanted = GetEnv(EnvVar::kSocketIfname);
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return Internal("getifaddrs: " + ErrorText(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  int best = -1;
  std::string address;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    const int rank = Rank(*one, wanted);
    if (rank < 0 || (best >= 0 && rank >= best)) continue;
    best = rank;
    address = NumericHost(one->ifa_addr);
  }
  if (!address.empty()) return address;
  return Status(StatusCode::kNotFound, wanted.empty()
                                           ? "this machine has no network interface that is up"
                                           : "ZPP_SOCKET_IFNAME='" + wanted +
                                                 "': no such interface is up with an address");
}

bool IsLoopback(const std::string& host) {
  const auto list = Resolve({.host = host, .port = 1}, 0);
  return list.ok() && *list != nullptr && IsLoopbackAddress((*list)->ai_addr);
}

}  // namespace zpp::internal
