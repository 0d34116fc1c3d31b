#include "collectives/bootstrap/handshake.h"

#include "collectives/bootstrap/internal/bytes.h"
#include "collectives/bootstrap/internal/rank_names.h"

namespace zpp {
namespace {

std::string Pack(const std::vector<HandshakeItem>& items) {
  internal::ByteWriter out;
  out.Put(static_cast<uint32_t>(items.size()));
  for (const HandshakeItem& item : items) out.PutString(item.name).PutString(item.value);
  return out.Take();
}

Result<std::vector<HandshakeItem>> Unpack(const std::string& blob, int rank) {
  internal::ByteReader in(blob);
  std::vector<HandshakeItem> items;
  for (auto left = in.Get<uint32_t>(); left > 0 && in.ok(); --left) {
    HandshakeItem item;
    item.name = in.GetString();
    item.value = in.GetString();
    items.push_back(std::move(item));
  }
  if (!in.done()) {
    return Status(StatusCode::kMismatch,
                  "rank " + std::to_string(rank) + " introduces itself in an unknown way");
  }
  return items;
}

// What `item` of rank 0 is there; empty when it is equal.
std::string Difference(const HandshakeItem& item, const std::vector<HandshakeItem>& others) {
  for (const HandshakeItem& other : others) {
    if (other.name != item.name) continue;
    if (other.value == item.value) return {};
    return item.name + " ('" + other.value + "' against '" + item.value + "')";
  }
  return item.name + " (it has none)";
}

}  // namespace

Status Agree(OutOfBand& channel, const std::vector<HandshakeItem>& items, Deadline deadline) {
  ZPP_ASSIGN_OR_RETURN(const auto blobs, channel.AllGather(Pack(items), deadline));
  ZPP_ASSIGN_OR_RETURN(const auto first, Unpack(blobs[0], 0));
  std::vector<int> differ;
  std::string in_what;
  for (size_t rank = 1; rank < blobs.size(); ++rank) {
    ZPP_ASSIGN_OR_RETURN(const auto theirs, Unpack(blobs[rank], static_cast<int>(rank)));
    std::string all;
    for (const HandshakeItem& item : first) {
      const std::string difference = Difference(item, theirs);
      if (!difference.empty()) all += (all.empty() ? "" : ", ") + difference;
    }
    if (all.empty()) continue;
    differ.push_back(static_cast<int>(rank));
    if (in_what.empty()) in_what = all;
  }
  if (differ.empty()) return {};
  const bool one = differ.size() == 1;
  return {StatusCode::kMismatch, internal::NameRanks(differ) + (one ? " differs" : " differ") +
                                     " from rank 0 in " + in_what +
                                     (one ? "" : " (the first of them)")};
}

}  // namespace zpp
