// Communicator::Split: who goes with whom, and the id that keeps their messages apart.
#include <algorithm>
#include <bit>
#include <tuple>

#include "collectives/exec/tag.h"
#include "collectives/internal/communicator_impl.h"
#include "collectives/transport/group.h"

namespace zpp {

static_assert(kMaxTagGroups <= 32);

// Travels as bytes, between machines of one byte order.
struct Communicator::Impl::Claim {
  int32_t color = -1;
  int32_t key = 0;
  uint32_t groups = 0;  // ids that this rank uses already
};

Result<std::vector<Communicator::Impl::Claim>> Communicator::Impl::GatherClaims(int color,
                                                                                int key) {
  constexpr int64_t kClaim_bytes = sizeof(Claim);
  const Claim mine{.color = color, .key = key, .groups = family_->groups()};
  std::vector<Claim> claims(static_cast<size_t>(topology_.world()));
  const CallOptions call;
  ZPP_RETURN_IF_ERROR(
      Run(CheckAllGather(CallerOf(call), {DType::kByte, &mine, kClaim_bytes},
                         {DType::kByte, claims.data(), kClaim_bytes * topology_.world()}),
          call));
  return claims;
}

// The lowest id that no rank here uses: then no two of them have it in common already. The groups
// of one Split share it, for they have no rank in common.
Result<std::unique_ptr<Communicator::Impl>> Communicator::Impl::Split(int color, int key) {
  ZPP_ASSIGN_OR_RETURN(const auto claims, GatherClaims(color, key));
  uint32_t used = 0;
  std::vector<int32_t> ranks;  // of this communicator
  for (int32_t r = 0; r < topology_.world(); ++r) {
    const Claim& claim = claims[static_cast<size_t>(r)];
    used |= claim.groups;
    if (claim.color == color) ranks.push_back(r);
  }
  const int id = std::countr_one(used);
  if (id >= kMaxTagGroups) {
    return Status(StatusCode::kResourceExhausted,
                  "split: these ranks are in " + std::to_string(kMaxTagGroups - 1) +
                      " groups already; one must be destroyed on all its ranks first");
  }
  if (color < 0) return std::unique_ptr<Impl>();
  std::stable_sort(ranks.begin(), ranks.end(), [&](int32_t a, int32_t b) {
    return claims[static_cast<size_t>(a)].key < claims[static_cast<size_t>(b)].key;
  });
  ZPP_ASSIGN_OR_RETURN(Topology topology, topology_.Subset(ranks));
  const auto own = std::find(ranks.begin(), ranks.end(), transport_->rank());
  const int rank = static_cast<int>(own - ranks.begin());
  if (!is_root()) {
    for (int32_t& r : ranks) r = group_.root_ranks[static_cast<size_t>(r)];
  }
  Group group{.id = id, .root_ranks = ranks, .transport = nullptr};
  group.transport = MakeGroup(&family_->transport(), std::move(ranks), rank);
  return std::make_unique<Impl>(family_, std::move(group), std::move(topology), options_);
}

}  // namespace zpp
