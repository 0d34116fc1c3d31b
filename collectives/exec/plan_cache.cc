#include "collectives/exec/plan_cache.h"

#include <algorithm>

namespace zpp {
namespace {

constexpr size_t kMaxEntries = 128;

}  // namespace

std::shared_ptr<const PreparedPlan> PlanCache::Find(const PlanKey& key,
                                                    std::span<const int64_t> shards) {
  for (Entry& entry : entries_) {
    if (entry.key.elems != key.elems || !(entry.key == key)) continue;
    if (!std::equal(shards.begin(), shards.end(), entry.shards.begin(), entry.shards.end()))
      continue;
    entry.last_use = ++clock_;
    return entry.plan;
  }
  return nullptr;
}

void PlanCache::Add(const PlanKey& key, std::span<const int64_t> shards,
                    std::shared_ptr<const PreparedPlan> plan) {
  Entry entry{key, {shards.begin(), shards.end()}, std::move(plan), ++clock_};
  if (entries_.size() < kMaxEntries) {
    entries_.push_back(std::move(entry));
    return;
  }
  *std::min_element(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.last_use < b.last_use;
  }) = std::move(entry);
}

}  // namespace zpp
