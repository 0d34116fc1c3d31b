// How a transport delivers.
#include "tests/collectives/transport_conformance.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "tests/collectives/transport_conformance_util.h"

namespace zpp::test {
namespace {

TEST_P(TransportConformance, EverySizeBetweenAllPairs) {
  Run(4, [](Transport& transport) -> Status {
    uint64_t message = 0;
    for (size_t size : {0, 1, 3, 7, 32, 64, 255, 4095, 4096, 32767, 32768, 65537, 131072, 131073,
                        262144, 1048576, 1048577}) {
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
        const StoreHint stores = offset % 2 == 0 ? StoreHint::kAuto : StoreHint::kStream;
        const RecvOp recv{previous, offset, std::span(in).subspan(offset, size), stores};
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

// The same memory to every peer in one batch, and again with other bytes as soon as it is complete.
TEST_P(TransportConformance, OneMessageToEveryPeer) {
  Run(4, [](Transport& transport) -> Status {
    constexpr size_t kSize = 200'000;
    Bytes out(kSize);
    std::vector<Bytes> in(4, Bytes(kSize));
    for (uint64_t message = 0; message < 40; ++message) {
      const Bytes content = Filled(transport.rank(), /*to=*/0, message, kSize);
      std::copy(content.begin(), content.end(), out.begin());
      std::vector<SendOp> sends;
      std::vector<RecvOp> recvs;
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == transport.rank()) continue;
        sends.push_back({peer, message, out});
        recvs.push_back({peer, message, in[static_cast<size_t>(peer)]});
      }
      ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start(sends, recvs));
      ZPP_RETURN_IF_ERROR(transport.Wait(ticket, Patience()));
      for (const RecvOp& recv : recvs) {
        ZPP_RETURN_IF_ERROR(CheckFilled(recv.data, recv.peer, /*to=*/0, message));
      }
    }
    return {};
  });
}

// More than any memory between ranks holds: what finds no room goes another way, and all arrive
// whole, in whatever order they are received.
TEST_P(TransportConformance, ManyLargeMessagesBeforeTheirReceives) {
  Run(2, [](Transport& transport) -> Status {
    constexpr size_t kMessages = 150, kSize = 300'000;
    const int me = transport.rank(), peer = 1 - me;
    std::vector<Ticket> tickets;
    std::vector<Bytes> out;
    for (size_t i = 0; i < kMessages; ++i) out.push_back(Filled(me, peer, i, kSize - i));
    for (size_t i = 0; i < kMessages; ++i) {
      const SendOp send{peer, i, out[i]};
      ZPP_ASSIGN_OR_RETURN(tickets.emplace_back(), transport.Start({&send, 1}, {}));
    }
    Bytes in(kSize);
    for (size_t i = kMessages; i-- > 0;) {
      const RecvOp recv{peer, i, std::span(in).first(kSize - i)};
      ZPP_ASSIGN_OR_RETURN(const Ticket ticket, transport.Start({}, {&recv, 1}));
      ZPP_RETURN_IF_ERROR(transport.Wait(ticket, Patience()));
      ZPP_RETURN_IF_ERROR(CheckFilled(recv.data, peer, me, i));
    }
    for (const Ticket ticket : tickets) ZPP_RETURN_IF_ERROR(transport.Wait(ticket, Patience()));
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

}  // namespace
}  // namespace zpp::test
