#include "tests/collectives/transport_conformance_util.h"

#include <time.h>

#include <algorithm>
#include <thread>

namespace zpp::test {

Deadline Patience() { return Deadline::In(30); }

namespace {
std::byte Pattern(int from, int to, uint64_t message, size_t i) {
  return static_cast<std::byte>((static_cast<size_t>(from) * 31 + static_cast<size_t>(to) * 17 +
                                 message * 7 + i + (i >> 8) * 3) &
                                0xff);
}
}  // namespace

Bytes Filled(int from, int to, uint64_t message, size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = Pattern(from, to, message, i);
  return bytes;
}
Status CheckFilled(std::span<const std::byte> bytes, int from, int to, uint64_t message) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    ZPP_REQUIRE_MSG(bytes[i] == Pattern(from, to, message, i),
                    "byte " + std::to_string(i) + " of message " + std::to_string(message) +
                        " from rank " + std::to_string(from));
  }
  return {};
}

Status ExchangeAll(Transport& transport, uint64_t message, size_t size) {
  const int world = transport.world(), me = transport.rank();
  std::vector<Bytes> out(static_cast<size_t>(world)), in(static_cast<size_t>(world));
  std::vector<SendOp> sends;
  std::vector<RecvOp> recvs;
  for (int peer = 0; peer < world; ++peer) {
    if (peer == me) continue;
    const auto p = static_cast<size_t>(peer);
    out[p] = Filled(me, peer, message, size);
    in[p].assign(size, kPoison);
    sends.push_back({peer, message, out[p]});
    recvs.push_back({peer, message, in[p]});
  }
  ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start(sends, recvs));
  ZPP_RETURN_IF_ERROR(transport.Wait(ticket, Patience()));
  for (int peer = 0; peer < world; ++peer) {
    if (peer != me)
      ZPP_RETURN_IF_ERROR(CheckFilled(in[static_cast<size_t>(peer)], peer, me, message));
  }
  return {};
}

double ThreadCpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void Linger(Transport& transport, milliseconds time) {
  for (const auto end = Deadline::Clock::now() + time; Deadline::Clock::now() < end;) {
    transport.Progress();
    std::this_thread::sleep_for(milliseconds(2));
  }
}

}  // namespace zpp::test
