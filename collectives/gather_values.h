// Small values from every rank: sizes, digests, statistics.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "collectives/communicator.h"
#include "common/status.h"

namespace zpp {

// `mine` of every rank of `comm`, in rank order: world times as many, `mine.size()` being equal on
// all ranks. Bytes as they are, so between machines of one kind. Collective; one uncompressed
// all-gather.
template <typename T>
Result<std::vector<T>> GatherValues(Communicator& comm, std::span<const T> mine,
                                    const CallOptions& call = {}) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(mine.size() * static_cast<size_t>(comm.world()));
  const auto bytes = static_cast<int64_t>(mine.size_bytes());
  ZPP_RETURN_IF_ERROR(
      comm.AllGather({DType::kByte, mine.data(), bytes},
                     {DType::kByte, all.data(), bytes * static_cast<int64_t>(comm.world())}, call));
  return all;
}
template <typename T>
Result<std::vector<T>> GatherValues(Communicator& comm, const std::vector<T>& mine) {
  return GatherValues(comm, std::span<const T>(mine));
}

}  // namespace zpp
