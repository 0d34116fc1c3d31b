// Plans of the shapes that were called last: the next call of a shape allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/exec/prepared_plan.h"
#include "collectives/policy.h"

namespace zpp {

struct PlanKey {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kByte;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  int64_t elems = 0;
  CollectivePolicy policy;
  bool feedback = false;
  bool operator==(const PlanKey&) const = default;
};

class PlanCache {
 public:
  // Null when it is not there.
  std::shared_ptr<const PreparedPlan> Find(const PlanKey& key, std::span<const int64_t> shards);
  void Add(const PlanKey& key, std::span<const int64_t> shards,
           std::shared_ptr<const PreparedPlan> plan);

 private:
  struct Entry {
    PlanKey key;
    std::vector<int64_t> shards;
    std::shared_ptr<const PreparedPlan> plan;
    uint64_t last_use = 0;
  };
  std::vector<Entry> entries_;
  uint64_t clock_ = 0;
};

}  // namespace zpp
