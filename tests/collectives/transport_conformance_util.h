// Messages that tell where they come from, for the conformance suite.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/transport/transport.h"
#include "tests/harness/ranks.h"

namespace zpp::test {

using Bytes = std::vector<std::byte>;
using std::chrono::milliseconds;

inline constexpr std::byte kPoison{0xcd};
// Long enough for any machine; a case that needs it has failed anyway.
Deadline Patience();

// A message whose bytes tell sender, receiver, message and place.
Bytes Filled(int from, int to, uint64_t message, size_t size);
Status CheckFilled(std::span<const std::byte> bytes, int from, int to, uint64_t message);
// One message of `size` bytes to and from every other rank, checked.
Status ExchangeAll(Transport& transport, uint64_t message, size_t size);

// CPU time of the calling thread.
double ThreadCpu_s();
// Stays alive, and lets bytes move, for a while.
void Linger(Transport& transport, milliseconds time);

}  // namespace zpp::test
