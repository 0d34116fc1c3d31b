// How ranks exchange their UCX addresses and connect.
#include <sched.h>

#include <string>
#include <vector>

#include "collectives/bootstrap/internal/bytes.h"
#include "collectives/bootstrap/internal/rank_names.h"
#include "collectives/transport/internal/ucx_core.h"
#include "common/log.h"
#include "topology/node_identity.h"

namespace zpp::internal {
namespace {

int CoresOfThisProcess() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// What a rank tells the others before they connect.
struct Card {
  std::string version, machine, address, net_address, window;

  std::string Pack() const {
    ByteWriter out;
    for (const std::string* field : {&version, &machine, &address, &net_address, &window}) {
      out.PutString(*field);
    }
    return out.Take();
  }
  static Result<Card> Unpack(const std::string& body) {
    ByteReader in(body);
    Card card;
    for (std::string* field :
         {&card.version, &card.machine, &card.address, &card.net_address, &card.window}) {
      *field = in.GetString();
    }
    if (!in.done()) return DataLoss("a rank's UCX address cannot be read");
    return card;
  }
};

Result<std::vector<Card>> ExchangeCards(const UcxCore& core, ControlPlane& control,
                                        Deadline deadline) {
  Card mine{.version = UcxRuntimeVersion(),
            .machine = BootId(),
            .address = {},
            .net_address = {},
            .window = {}};
  if (core.window != nullptr) mine.window = core.window->card();
  ZPP_ASSIGN_OR_RETURN(mine.address, UcxAddress(core, /*net_only=*/false));
  ZPP_ASSIGN_OR_RETURN(mine.net_address, UcxAddress(core, /*net_only=*/true));
  ZPP_ASSIGN_OR_RETURN(const auto blobs, control.AllGather(mine.Pack(), deadline));
  std::vector<Card> cards;
  for (const std::string& blob : blobs) {
    ZPP_ASSIGN_OR_RETURN(Card card, Card::Unpack(blob));
    cards.push_back(std::move(card));
  }
  return cards;
}

Status CheckVersions(const std::vector<Card>& cards) {
  std::vector<int> others;
  for (size_t peer = 1; peer < cards.size(); ++peer) {
    if (cards[peer].version != cards[0].version) others.push_back(static_cast<int>(peer));
  }
  if (others.empty()) return {};
  return {StatusCode::kMismatch,
          NameRanks(others) + " and rank 0 have different versions of UCX: " +
              cards[static_cast<size_t>(others.front())].version + " and " + cards[0].version};
}

// A peer that cannot be connected to may just have died: then the verdict is the better answer.
Status Explain(ControlPlane& control, int peer, const Status& why) {
  control.Report(peer, why.message());
  const auto verdict = control.AwaitVerdict(Deadline::In(2));
  return verdict ? *verdict : why;
}

// A rank that has no window maps none either: it was told so, or its machine has no such memory.
bool ShareMemory(UcxCore& core, int peer, const std::string& card, int self) {
  if (core.window == nullptr || card.empty()) return false;
  PeerWindow& window = core.peers[static_cast<size_t>(peer)].window;
  window = PeerWindow::Open(card, self);
  if (window.empty()) {
    Log(LogLevel::kInfo, "rank " + std::to_string(peer) + "'s shared memory is out of reach");
  }
  return !window.empty();
}

}  // namespace

Result<UcxNeighbourhood> ConnectAllUcx(UcxCore& core, ControlPlane& control,
                                       const Topology& topology, Deadline deadline) {
  ZPP_ASSIGN_OR_RETURN(const auto cards, ExchangeCards(core, control, deadline));
  ZPP_RETURN_IF_ERROR(CheckVersions(cards));
  const int self = control.rank();
  UcxNeighbourhood found;
  int here = 0;
  core.peers.resize(cards.size());
  for (int peer = 0; peer < control.world(); ++peer) {
    const Card& card = cards[static_cast<size_t>(peer)];
    here += card.machine == cards[static_cast<size_t>(self)].machine ? 1 : 0;
    if (peer == self) continue;
    const bool near = topology.NodeOf(peer) == topology.NodeOf(self);
    const Status connected = ConnectUcx(core, peer, near ? card.address : card.net_address);
    if (!connected.ok()) return Explain(control, peer, connected);
    if (near && ShareMemory(core, peer, card.window, self)) found.windows = true;
    std::string& way = near ? found.near : found.across;
    if (way.empty()) way = DescribeEndpoint(core.peers[static_cast<size_t>(peer)].endpoint);
  }
  // Nobody may finish and leave before the last has connected to him.
  ZPP_RETURN_IF_ERROR(control.AllGather("connected", deadline).status());
  if (core.window != nullptr) core.window->CloseDescriptor();
  found.crowded = here > CoresOfThisProcess();
  return found;
}

}  // namespace zpp::internal
