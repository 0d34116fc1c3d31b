// Every send meets exactly one receive.
#include <algorithm>
#include <tuple>

#include "collectives/plan/internal/machine.h"
#include "quant/wire.h"

namespace zpp::internal {
namespace {

struct Sent {
  int from, to;
  const Message* message;
  bool met = false;
  bool operator<(const Sent& other) const {
    return std::tie(from, to) < std::tie(other.from, other.to);
  }
};

}  // namespace

void Machine::Exchange(size_t stage) {
  const int64_t at = static_cast<int64_t>(stage);
  std::vector<Sent> sent;
  for (const Plan& plan : plans_) {
    for (uint32_t m = plan.Begin(stage).sends_end; m < plan.stages[stage].sends_end; ++m) {
      sent.push_back({plan.rank, plan.sends[m].peer, &plan.sends[m]});
    }
  }
  std::sort(sent.begin(), sent.end());
  for (size_t i = 1; i < sent.size(); ++i) {
    if (!(sent[i - 1] < sent[i])) {
      Fault(sent[i].from, at, "two sends to rank " + std::to_string(sent[i].to));
    }
  }
  for (const Plan& plan : plans_) {
    for (uint32_t m = plan.Begin(stage).recvs_end; m < plan.stages[stage].recvs_end; ++m) {
      const Message& recv = plan.recvs[m];
      const Sent key = {recv.peer, plan.rank, nullptr};
      const auto it = std::lower_bound(sent.begin(), sent.end(), key);
      if (it == sent.end() || key < *it) {
        Fault(plan.rank, at, "a receive from rank " + std::to_string(recv.peer) + " meets no send");
      } else if (it->met) {
        Fault(plan.rank, at, "two receives from rank " + std::to_string(recv.peer));
      } else {
        it->met = true;
        Deliver(stage, it->from, *it->message, plan.rank, recv);
      }
    }
  }
  for (const Sent& s : sent) {
    if (!s.met) Fault(s.from, at, "a send to rank " + std::to_string(s.to) + " meets no receive");
  }
}

void Machine::Deliver(size_t stage, int from, const Message& send, int to, const Message& recv) {
  const int64_t at = static_cast<int64_t>(stage);
  const Plan &sender = PlanOf(from), &receiver = PlanOf(to);
  const std::string who = " the send of rank " + std::to_string(from);
  if (recv.data.count != send.data.count) {
    return Fault(to, at, "a receive of another length than" + who);
  }
  if (receiver.slots[recv.data.slot].spec != sender.slots[send.data.slot].spec) {
    return Fault(to, at, "a receive in another encoding than" + who);
  }
  const int tier = request_.topology->TierOf(from, to);
  if (recv.tier != tier || send.tier != tier) Fault(to, at, "the tier is wrong of" + who);
  for (uint32_t i = 0; i < recv.data.count; ++i) {
    if (receiver.PartOf(recv.data, i) != sender.PartOf(send.data, i)) {
      return Fault(to, at, "a receive of other parts than" + who);
    }
    const ExprId value = Value(from, send.data.slot, send.data.first + i);
    if (value == kNothing) return;  // named when it was sent
    Write(to, stage, recv.data, i, value);
  }
  ++proof_.messages;
  for (int c = 0; c < chunks_; ++c) {
    proof_.tier_bytes[static_cast<size_t>(tier)] +=
        SpanBytes(receiver, parts_, recv.data, c, chunks_);
  }
}

}  // namespace zpp::internal
