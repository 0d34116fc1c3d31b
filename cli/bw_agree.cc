#include "cli/bw_agree.h"

#include <cstring>
#include <vector>

#include "collectives/gather_values.h"
#include "common/hash.h"

namespace zpp::cli {
namespace {

// Of fixed size, so that one small all-gather carries it.
struct Card {
  int32_t code = 0;
  char message[1004] = {};  // cut off if need be
  uint64_t arguments = 0;
  uint64_t values = 0;
};

Card CardOf(const Readiness& mine) {
  Card card;
  card.code = static_cast<int32_t>(mine.status.code());
  std::strncpy(card.message, mine.status.message().c_str(), sizeof card.message - 1);
  card.arguments = mine.arguments;
  card.values = mine.values;
  return card;
}

std::string RankName(size_t rank) { return "rank " + std::to_string(rank); }

Status Verdict(const std::vector<Card>& cards) {
  for (size_t rank = 0; rank < cards.size(); ++rank) {
    if (cards[rank].code == 0) continue;
    const std::string where = cards.size() > 1 ? RankName(rank) + ": " : "";
    return {static_cast<StatusCode>(cards[rank].code), where + cards[rank].message};
  }
  for (size_t rank = 1; rank < cards.size(); ++rank) {
    const bool same_arguments = cards[rank].arguments == cards[0].arguments;
    if (same_arguments && cards[rank].values == cards[0].values) continue;
    const char* what = same_arguments ? "'s --data holds other values than rank 0's"
                                      : " was started with other flags than rank 0";
    return {StatusCode::kMismatch, RankName(rank) + what};
  }
  return {};
}

void Add(Hash* hash, const std::string& text) {
  hash->Add(text.size());
  hash->Add(std::string_view(text));
}

}  // namespace

uint64_t DigestOf(const BwArgs& args) {
  Hash hash;
  hash.Add(static_cast<uint64_t>(args.kind));
  hash.Add(static_cast<uint64_t>(args.dtype));
  hash.Add(static_cast<uint64_t>(args.op));
  hash.Add(static_cast<uint64_t>(args.warmup));
  // Time is rank 0's affair.
  hash.Add(args.seconds > 0 ? 0 : static_cast<uint64_t>(args.iters));
  hash.Add(args.policy.flat ? 1 : 0);
  Add(&hash, ToString(args.policy.intra));
  Add(&hash, ToString(args.policy.inter));
  // The size of the data goes with the values.
  hash.Add(args.size_of_data ? 1 : 0);
  if (args.size_of_data) return hash.value();
  for (const int64_t size : args.sizes_bytes) hash.Add(static_cast<uint64_t>(size));
  return hash.value();
}

Status AgreeToGoOn(Communicator& comm, const Readiness& mine) {
  const Card card = CardOf(mine);
  ZPP_ASSIGN_OR_RETURN(const std::vector<Card> cards,
                       GatherValues(comm, std::span<const Card>(&card, 1)));
  return Verdict(cards);
}

}  // namespace zpp::cli
