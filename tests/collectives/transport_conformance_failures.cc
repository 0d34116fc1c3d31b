// How a transport fails: once, for good, with the reason, and without touching the caller's memory
// again.
#include <cstring>
#include <thread>

#include "tests/collectives/transport_conformance.h"
#include "tests/collectives/transport_conformance_util.h"

namespace zpp::test {
namespace {

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
    if (transport.rank() != 0) {  // time counts from when rank 0 is there
      const RecvOp there{0, 2, {}};
      ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({}, {&there, 1}));
      ZPP_RETURN_IF_ERROR(transport.Wait(ticket, Deadline::In(20)));
    }
    if (transport.rank() == 2) {
      Linger(transport, milliseconds(1400));
      return {};
    }
    if (transport.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(1000));
      const SendOp send{0, 1, late};
      (void)transport.Start({&send, 1}, {});  // may fail: rank 0 has given up
      Linger(transport, milliseconds(400));
      return {};
    }
    const SendOp there[] = {{1, 2, {}}, {2, 2, {}}};
    ZPP_ASSIGN_OR_RETURN(const Ticket told, transport.Start(there, {}));
    ZPP_RETURN_IF_ERROR(transport.Wait(told, Deadline::In(20)));
    Bytes in(100);
    const RecvOp recv{1, 1, in};
    ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({}, {&recv, 1}));
    const Status status = transport.Wait(ticket, Deadline::In(0.1));
    ZPP_REQUIRE_MSG(status.code() == StatusCode::kDeadlineExceeded, status.ToString());
    ZPP_REQUIRE_MSG(status.message().find("rank 1") != std::string::npos, status.ToString());
    ZPP_RETURN_IF_ERROR(CheckSticky(transport, status));
    const Bytes when_it_failed = in;
    Linger(transport, milliseconds(1100));
    ZPP_REQUIRE(in == when_it_failed);
    return {};
  });
}

// Sizes that fit one packet, and that take many; too short and too long.
TEST_P(TransportConformance, AMessageOfAnotherLengthIsDataLoss) {
  struct Lengths {
    size_t sent, expected;
  };
  for (const Lengths lengths : {Lengths{5, 8},
                                {8, 5},
                                {0, 1},
                                {1, 0},
                                {300000, 299999},
                                {299999, 300000},
                                // Messages that may travel as a reference of 32 bytes.
                                {100000, 32},
                                {100000, 20},
                                {32, 100000},
                                {100000, 0},
                                {100000, 200}}) {
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
  struct Bad {
    int peer;
    Tag tag;
  };
  for (const Bad bad :
       {Bad{0, 1}, {-1, 1}, {2, 1}, {1 << 20, 1}, {1, Tag{1} << kTagBits}, {1, ~Tag{0}}}) {
    for (bool sending : {true, false}) {
      SCOPED_TRACE("peer " + std::to_string(bad.peer) + ", tag " + std::to_string(bad.tag) +
                   (sending ? ", send" : ", receive"));
      RunWithoutShutdown(2, [=](Transport& transport) -> Status {
        if (transport.rank() == 1) {
          Linger(transport, milliseconds(20));
          return {};
        }
        Bytes bytes(4);
        const SendOp send{bad.peer, bad.tag, bytes};
        const RecvOp recv{bad.peer, bad.tag, bytes};
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

TEST_P(TransportConformance, ZeroIsNeverATicket) {
  for (const bool waits : {true, false}) {
    RunWithoutShutdown(2, [waits](Transport& transport) -> Status {
      const Status exchanged = ExchangeAll(transport, 1, 100);  // leaves a used batch behind
      if (transport.rank() == 1) {
        Linger(transport, milliseconds(100));
        return {};
      }
      ZPP_RETURN_IF_ERROR(exchanged);
      const Status status = waits ? transport.Wait(0, Patience()) : transport.Test(0).status();
      ZPP_REQUIRE_MSG(status.code() == StatusCode::kInvalidArgument, status.ToString());
      return CheckSticky(transport, status);
    });
  }
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
    ZPP_REQUIRE_MSG(!status.ok() && status.message().find('2') != std::string::npos,
                    status.ToString());
    return {};
  });
}

}  // namespace
}  // namespace zpp::test
