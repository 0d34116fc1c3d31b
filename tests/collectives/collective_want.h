// What a case asks of one rank: the sizes of its buffers and the values that must come out.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/communicator.h"
#include "tests/collectives/collective_cases.h"
#include "tests/collectives/collective_reference.h"

namespace zpp::test {

struct Sizes {
  std::vector<int64_t> shards, borders;
  int64_t in = 0, out = 0, whole = 0;
  int64_t own_offset = 0;  // of the shard in the whole vector
};
Sizes SizesOf(const CollectiveCase& c, int rank, int world);

Expected Want(const Communicator& comm, const CollectiveCase& c, const Sizes& sizes);

}  // namespace zpp::test
