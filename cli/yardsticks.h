// What the machine's memory does when nothing is computed: the yardsticks that codec speed is
// compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zpp {

// Sums a vector of 32-bit words, in a plain loop: a codec that looks ahead can be faster from
// memory.
uint32_t ReadAll(std::span<const std::byte> data);
// Writes every byte, with stores that go through the caches, or with ones that bypass them.
void FillAll(std::span<std::byte> data, bool stream);
// d[i] += 1 in place, in a plain loop.
void UpdateAll(std::span<float> data);

}  // namespace zpp
