#include "tests/collectives/transport_conformance.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

namespace zpp::test {
namespace {

using Bytes = std::vector<std::byte>;
using std::chrono::milliseconds;

constexpr std::byte kPoison{0xcd};
// Long enough for any machine; a case that needs it has failed anyway.
Deadline Patience() { return Deadline::In(30); }

// Tells sender, receiver, message and place.
std::byte Pattern(int from, int to, uint64_t message, size_t i) {
  return static_cast<std::byte>((static_cast<size_t>(from) * 31 + static_cast<size_t>(to) * 17 +
                                 message * 7 + i + (i >> 8) * 3) &
                                0xff);
}
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

// One message of `size` bytes to and from every other rank.
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

// Stays alive, and lets bytes move, for a while.
void Linger(Transport& transport, milliseconds time) {
  for (const auto end = Deadline::Clock::now() + time; Deadline::Clock::now() < end;) {
    transport.Progress();
    std::this_thread::sleep_for(milliseconds(2));
  }
}

TEST_P(TransportConformance, EverySizeBetweenAllPairs) {
  Run(4, [](Transport& transport) -> Status {
    uint64_t message = 0;
    for (size_t size : {0, 1, 3, 7, 64, 255, 4095, 4096, 65537, 262144, 1048576, 1048577}) {
      ZPP_RETURN_IF_ERROR(ExchangeAll(transport, message++, size));
    }
    return {};
  });
}

TEST_P(TransportConformance, SixtyFourMebibytesBothWays) {
  Run(2, [](Transport& transport) { return ExchangeAll(transport, 1, size_t{64} << 20); });
}

TEST_P(TransportConformance, AWorldOfOne) {
  Run(1, [](Transport& transport) -> Status {
    ZPP_REQUIRE(transport.rank() == 0 && transport.world() == 1);
    ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({}, {}));
    return transport.Wait(ticket, Patience());
  });
}

TEST_P(TransportConformance, AnEmptyBatchCompletes) {
  Run(2, [](Transport& transport) -> Status {
    ZPP_ASSIGN_OR_RETURN(const Ticket first, transport.Start({}, {}));
    ZPP_ASSIGN_OR_RETURN(const Ticket second, transport.Start({}, {}));
    ZPP_REQUIRE(first != 0 && second != 0 && first != second);
    ZPP_RETURN_IF_ERROR(transport.Wait(second, Patience()));
    return transport.Wait(first, Patience());
  });
}

TEST_P(TransportConformance, MisalignedMemoryAndNothingBeyondIt) {
  Run(3, [](Transport& transport) -> Status {
    const int next = (transport.rank() + 1) % 3, previous = (transport.rank() + 2) % 3;
    for (size_t offset = 1; offset < 9; ++offset) {
      for (size_t size : {1u, 13u, 4099u, 300001u}) {
        Bytes out(offset), in(offset + size + 64, kPoison);
        const Bytes content = Filled(transport.rank(), next, offset, size);
        out.insert(out.end(), content.begin(), content.end());
        const SendOp send{next, offset, std::span(out).subspan(offset)};
        const RecvOp recv{previous, offset, std::span(in).subspan(offset, size)};
        ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({&send, 1}, {&recv, 1}));
        ZPP_RETURN_IF_ERROR(transport.Wait(ticket, Patience()));
        ZPP_RETURN_IF_ERROR(CheckFilled(recv.data, previous, transport.rank(), offset));
        for (size_t i = 0; i < offset; ++i) ZPP_REQUIRE(in[i] == kPoison);
        for (size_t i = offset + size; i < in.size(); ++i) ZPP_REQUIRE(in[i] == kPoison);
      }
    }
    return {};
  });
}

TEST_P(TransportConformance, ManyTicketsWaitedForInAnyOrder) {
  Run(3, [](Transport& transport) -> Status {
    constexpr size_t kTickets = 300;
    const int next = (transport.rank() + 1) % 3, previous = (transport.rank() + 2) % 3;
    std::vector<Bytes> out, in;
    for (size_t i = 0; i < kTickets; ++i) {
      out.push_back(Filled(transport.rank(), next, i, i * 37 % 5000));
      in.emplace_back(i * 37 % 5000, kPoison);
    }
    std::vector<Ticket> tickets;
    for (size_t i = 0; i < kTickets; ++i) {
      const SendOp send{next, i, out[i]};
      const RecvOp recv{previous, i, in[i]};
      ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({&send, 1}, {&recv, 1}));
      tickets.push_back(ticket);
    }
    std::vector<size_t> order(kTickets);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(transport.rank())));
    for (size_t i : order) {
      ZPP_RETURN_IF_ERROR(transport.Wait(tickets[i], Patience()));
      ZPP_RETURN_IF_ERROR(CheckFilled(in[i], previous, transport.rank(), i));
    }
    return {};
  });
}

TEST_P(TransportConformance, TagsPairMessagesWhateverTheOrderOfPosting) {
  Run(2, [](Transport& transport) -> Status {
    const int me = transport.rank(), peer = 1 - me;
    // Neighbouring tags, and tags that differ only in their highest bits.
    const std::vector<Tag> tags = {
        0, 1, 2, 0xffff, 0x10000, Tag{1} << 40, (Tag{1} << 40) + 1, Tag{1} << 47};
    std::vector<Bytes> out, in;
    std::vector<SendOp> sends;
    std::vector<RecvOp> recvs;
    for (size_t i = 0; i < tags.size(); ++i) {
      out.push_back(Filled(me, peer, i, 100 + i));
      in.emplace_back(100 + i, kPoison);
    }
    for (size_t i = 0; i < tags.size(); ++i) sends.push_back({peer, tags[i], out[i]});
    for (size_t i = tags.size(); i-- > 0;) recvs.push_back({peer, tags[i], in[i]});
    ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start(sends, recvs));
    ZPP_RETURN_IF_ERROR(transport.Wait(ticket, Patience()));
    for (size_t i = 0; i < tags.size(); ++i) ZPP_RETURN_IF_ERROR(CheckFilled(in[i], peer, me, i));
    return {};
  });
}

TEST_P(TransportConformance, AReceiveMayBePostedLongAfterTheSend) {
  Run(2, [](Transport& transport) -> Status {
    for (size_t size : {size_t{0}, size_t{5}, size_t{70000}, size_t{3} << 20}) {
      if (transport.rank() == 0) {
        const Bytes out = Filled(0, 1, size, size);
        const SendOp send{1, size, out};
        ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({&send, 1}, {}));
        ZPP_RETURN_IF_ERROR(transport.Wait(ticket, Patience()));
      } else {
        Linger(transport, milliseconds(30));
        Bytes in(size, kPoison);
        const RecvOp recv{0, size, in};
        ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({}, {&recv, 1}));
        ZPP_RETURN_IF_ERROR(transport.Wait(ticket, Patience()));
        ZPP_RETURN_IF_ERROR(CheckFilled(in, 0, 1, size));
      }
    }
    return {};
  });
}

TEST_P(TransportConformance, TestEndsWithoutAnyWait) {
  Run(2, [](Transport& transport) -> Status {
    const int me = transport.rank(), peer = 1 - me;
    constexpr size_t kSize = 256 << 10;
    std::vector<Bytes> out, in(16, Bytes(kSize, kPoison));
    std::vector<SendOp> sends;
    std::vector<RecvOp> recvs;
    for (size_t i = 0; i < in.size(); ++i) out.push_back(Filled(me, peer, i, kSize));
    for (size_t i = 0; i < in.size(); ++i) {
      sends.push_back({peer, i, out[i]});
      recvs.push_back({peer, i, in[i]});
    }
    ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start(sends, recvs));
    // Bytes move while the rank computes: Progress alone gets it done.
    for (const Deadline deadline = Patience();;) {
      for (int pieces = 0; pieces < 4; ++pieces) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));  // stands for computing
        transport.Progress();
      }
      ZPP_ASSIGN_OR_RETURN(const bool complete, transport.Test(ticket));
      if (complete) break;
      ZPP_REQUIRE(!deadline.expired());
    }
    for (size_t i = 0; i < in.size(); ++i) ZPP_RETURN_IF_ERROR(CheckFilled(in[i], peer, me, i));
    return {};
  });
}

TEST_P(TransportConformance, RandomTraffic) {
  Run(4, [](Transport& transport) -> Status {
    std::mt19937 common(20250101);  // the same schedule on all ranks
    for (uint64_t step = 0; step < 150; ++step) {
      std::vector<Bytes> out, in;
      out.reserve(64);
      in.reserve(64);
      std::vector<SendOp> sends;
      std::vector<RecvOp> recvs;
      std::vector<std::pair<int, Tag>> from;
      for (int message = 0; message < 12; ++message) {
        const int sender = static_cast<int>(common() % 4), hop = static_cast<int>(1 + common() % 3);
        const int receiver = (sender + hop) % 4;
        const size_t size = common() % (message == 0 ? 400000 : 3000);
        const Tag tag = step * 16 + static_cast<Tag>(message);
        if (sender == transport.rank()) {
          out.push_back(Filled(sender, receiver, tag, size));
          sends.push_back({receiver, tag, out.back()});
        } else if (receiver == transport.rank()) {
          in.emplace_back(size, kPoison);
          recvs.push_back({sender, tag, in.back()});
          from.emplace_back(sender, tag);
        }
      }
      ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start(sends, recvs));
      ZPP_RETURN_IF_ERROR(transport.Wait(ticket, Patience()));
      for (size_t i = 0; i < in.size(); ++i) {
        ZPP_RETURN_IF_ERROR(CheckFilled(in[i], from[i].first, transport.rank(), from[i].second));
      }
    }
    return {};
  });
}

TEST_P(TransportConformance, WireMemoryIsAlignedAndWritable) {
  Run(1, [](Transport& transport) -> Status {
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{65}, size_t{1} << 20}) {
      ZPP_ASSIGN_OR_RETURN(Buffer buffer, transport.Allocate(bytes));
      ZPP_REQUIRE(buffer.size() == bytes);
      ZPP_REQUIRE(reinterpret_cast<uintptr_t>(buffer.data()) % Buffer::kAlignment_bytes == 0);
      if (bytes > 0) std::memset(buffer.data(), 1, bytes);
    }
    ZPP_REQUIRE(!transport.info().name.empty() && transport.info().best_message_bytes > 0);
    return {};
  });
}

// A blocked rank must leave its core to others: this one waits for half a second.
TEST_P(TransportConformance, WaitingSleeps) {
  Run(2, [](Transport& transport) -> Status {
    std::byte byte{};
    if (transport.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(500));
      const SendOp send{1, 1, {&byte, 1}};
      ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({&send, 1}, {}));
      return transport.Wait(ticket, Patience());
    }
    const RecvOp recv{0, 1, {&byte, 1}};
    ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({}, {&recv, 1}));
    const double before_s = ThreadCpu_s();
    ZPP_RETURN_IF_ERROR(transport.Wait(ticket, Patience()));
    ZPP_REQUIRE_MSG(ThreadCpu_s() - before_s < 0.25,
                    std::to_string(ThreadCpu_s() - before_s) + " s of CPU");
    return {};
  });
}

TEST_P(TransportConformance, MoreRanksThanCoresGetThrough) {
  Run(8, [](Transport& transport) -> Status {
    for (uint64_t step = 0; step < 40; ++step)
      ZPP_RETURN_IF_ERROR(ExchangeAll(transport, step, 1000));
    return {};
  });
}

// The first failure sticks: `status` again from every call.
Status CheckSticky(Transport& transport, const Status& status) {
  const auto same = [&](const Status& other) {
    return other.code() == status.code() && other.lost_rank() == status.lost_rank() &&
           other.message() == status.message();
  };
  ZPP_REQUIRE_MSG(same(transport.Start({}, {}).status()),
                  transport.Start({}, {}).status().ToString());
  ZPP_REQUIRE_MSG(same(transport.Wait(1, Patience())), transport.Wait(1, Patience()).ToString());
  ZPP_REQUIRE(same(transport.Test(1).status()));
  ZPP_REQUIRE(same(transport.Shutdown(Patience())));
  transport.Progress();
  transport.Abort({StatusCode::kAborted, "another reason"});
  ZPP_REQUIRE(same(transport.Start({}, {}).status()));
  return {};
}

TEST_P(TransportConformance, AbortFromAnotherThreadWakesAWait) {
  RunWithoutShutdown(2, [](Transport& transport) -> Status {
    if (transport.rank() == 1) {
      Linger(transport, milliseconds(400));
      return {};
    }
    Bytes in(10);
    const RecvOp recv{1, 1, in};
    ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({}, {&recv, 1}));
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds(50));
      transport.Abort({StatusCode::kAborted, "had enough"});
      transport.Abort({StatusCode::kInternal, "comes too late"});
    });
    const Status status = transport.Wait(ticket, Deadline::In(300));
    other.join();
    ZPP_REQUIRE_MSG(status.code() == StatusCode::kAborted && status.message() == "had enough",
                    status.ToString());
    return CheckSticky(transport, status);
  });
}

TEST_P(TransportConformance, AbortBeforeAnythingIsStarted) {
  RunWithoutShutdown(1, [](Transport& transport) -> Status {
    transport.Abort({StatusCode::kAborted, "never mind"});
    const Status status = transport.Start({}, {}).status();
    ZPP_REQUIRE_MSG(status.code() == StatusCode::kAborted && status.message() == "never mind",
                    status.ToString());
    return CheckSticky(transport, status);
  });
}

// Rank 1 lives but sends nothing in time, then sends: rank 0 has failed and its memory must stay as
// it is.
TEST_P(TransportConformance, ADeadlineFailsTheTransportAndNamesWhoOwes) {
  RunWithoutShutdown(3, [](Transport& transport) -> Status {
    Bytes late(100, kPoison);
    if (transport.rank() == 2) {
      Linger(transport, milliseconds(600));
      return {};
    }
    if (transport.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(400));
      const SendOp send{0, 1, late};
      (void)transport.Start({&send, 1}, {});  // may fail: rank 0 has given up
      Linger(transport, milliseconds(200));
      return {};
    }
    Bytes in(100);
    const RecvOp recv{1, 1, in};
    ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({}, {&recv, 1}));
    const Status status = transport.Wait(ticket, Deadline::In(0.1));
    ZPP_REQUIRE_MSG(status.code() == StatusCode::kDeadlineExceeded, status.ToString());
    ZPP_REQUIRE_MSG(status.message().find("rank 1") != std::string::npos, status.ToString());
    ZPP_RETURN_IF_ERROR(CheckSticky(transport, status));
    const Bytes when_it_failed = in;
    Linger(transport, milliseconds(500));
    ZPP_REQUIRE(in == when_it_failed);
    return {};
  });
}

// Sizes that fit one packet, and that take many; too short and too long.
TEST_P(TransportConformance, AMessageOfAnotherLengthIsDataLoss) {
  struct Lengths {
    size_t sent, expected;
  };
  for (const Lengths lengths :
       {Lengths{5, 8}, {8, 5}, {0, 1}, {1, 0}, {300000, 299999}, {299999, 300000}}) {
    SCOPED_TRACE(std::to_string(lengths.sent) + " sent, " + std::to_string(lengths.expected) +
                 " expected");
    RunWithoutShutdown(2, [lengths](Transport& transport) -> Status {
      if (transport.rank() == 0) {
        const Bytes out(lengths.sent, std::byte{1});
        const SendOp send{1, 1, out};
        ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({&send, 1}, {}));
        (void)transport.Wait(ticket,
                             Deadline::In(10));  // either way: the receiver says what is wrong
        Linger(transport, milliseconds(100));
        return {};
      }
      Bytes in(lengths.expected + 64, kPoison);
      const RecvOp recv{0, 1, std::span(in).first(lengths.expected)};
      ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({}, {&recv, 1}));
      const Status status = transport.Wait(ticket, Patience());
      ZPP_REQUIRE_MSG(status.code() == StatusCode::kDataLoss, status.ToString());
      ZPP_REQUIRE_MSG(status.message().find("rank 0") != std::string::npos, status.ToString());
      for (size_t i = lengths.expected; i < in.size(); ++i) ZPP_REQUIRE(in[i] == kPoison);
      return CheckSticky(transport, status);
    });
  }
}

TEST_P(TransportConformance, APeerThatLeavesIsNamed) {
  RunWithoutShutdown(3, [](Transport& transport) -> Status {
    if (transport.rank() == 1) return {};
    Bytes in(10);
    const RecvOp recv{1, 1, in};
    const Result<Ticket> ticket = transport.Start({}, {&recv, 1});
    const Status status = ticket.ok() ? transport.Wait(*ticket, Patience()) : ticket.status();
    ZPP_REQUIRE_MSG(status.code() == StatusCode::kPeerLost && status.lost_rank() == 1,
                    status.ToString());
    return CheckSticky(transport, status);
  });
}

TEST_P(TransportConformance, WhatCannotWorkIsRefused) {
  for (int peer : {0, -1, 2, 1 << 20}) {
    for (bool sending : {true, false}) {
      SCOPED_TRACE("peer " + std::to_string(peer) + (sending ? ", send" : ", receive"));
      RunWithoutShutdown(2, [=](Transport& transport) -> Status {
        if (transport.rank() == 1) {
          Linger(transport, milliseconds(20));
          return {};
        }
        Bytes bytes(4);
        const SendOp send{peer, 1, bytes};
        const RecvOp recv{peer, 1, bytes};
        const Status status = sending ? transport.Start({&send, 1}, {}).status()
                                      : transport.Start({}, {&recv, 1}).status();
        ZPP_REQUIRE_MSG(status.code() == StatusCode::kInvalidArgument, status.ToString());
        return CheckSticky(transport, status);
      });
    }
  }
}

TEST_P(TransportConformance, ATicketIsWaitedForOnce) {
  RunWithoutShutdown(1, [](Transport& transport) -> Status {
    ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({}, {}));
    ZPP_RETURN_IF_ERROR(transport.Wait(ticket, Patience()));
    const Status status = transport.Wait(ticket, Patience());
    ZPP_REQUIRE_MSG(status.code() == StatusCode::kInvalidArgument, status.ToString());
    return CheckSticky(transport, status);
  });
}

TEST_P(TransportConformance, AfterShutdownNothingStarts) {
  RunWithoutShutdown(2, [](Transport& transport) -> Status {
    ZPP_RETURN_IF_ERROR(ExchangeAll(transport, 1, 100));
    ZPP_RETURN_IF_ERROR(transport.Shutdown(Patience()));
    ZPP_REQUIRE(!transport.Start({}, {}).ok());
    return transport.Shutdown(Patience());
  });
}

TEST_P(TransportConformance, ShutdownWaitsForAllAndNamesWhoNeverCame) {
  RunWithoutShutdown(3, [](Transport& transport) -> Status {
    if (transport.rank() == 2) {
      Linger(transport, milliseconds(1500));
      return {};
    }
    const Status status = transport.Shutdown(Deadline::In(0.3));
    ZPP_REQUIRE(!status.ok());
    return {};
  });
}

}  // namespace

void TransportConformance::Run(int world, const TransportCase& body) const {
  EXPECT_TRUE(AllOk(GetParam().run(world, /*shut_down=*/true, body)));
}

void TransportConformance::RunWithoutShutdown(int world, const TransportCase& body) const {
  EXPECT_TRUE(AllOk(GetParam().run(world, /*shut_down=*/false, body)));
}

namespace {
Result<std::string> RunCase(std::unique_ptr<Transport> transport, bool shut_down,
                            const TransportCase& body) {
  ZPP_RETURN_IF_ERROR(body(*transport));
  if (shut_down) ZPP_RETURN_IF_ERROR(transport->Shutdown(Patience()));
  return std::string();
}
}  // namespace

TransportBackend ThreadBackend(
    std::string name, std::function<std::vector<std::unique_ptr<Transport>>(int world)> make) {
  return {.name = std::move(name),
          .run = [make](int world, bool shut_down, const TransportCase& body) {
            auto transports = make(world);
            return RunThreads(world, [&](int rank) {
              return RunCase(std::move(transports[static_cast<size_t>(rank)]), shut_down, body);
            });
          }};
}

TransportBackend ProcessBackend(
    std::string name, std::function<Result<std::unique_ptr<Transport>>(int rank, int world)> make) {
  return {.name = std::move(name),
          .run = [make](int world, bool shut_down, const TransportCase& body) {
            return RunProcesses(world, 90, [&](int rank) -> Result<std::string> {
              ZPP_ASSIGN_OR_RETURN(auto transport, make(rank, world));
              return RunCase(std::move(transport), shut_down, body);
            });
          }};
}

}  // namespace zpp::test
