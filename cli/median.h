// The median, as every report here means it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace zpp::cli {

// The mean of the two in the middle for an even number. `values` is not empty.
inline double Median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle),
                   values.end());
  const double upper = values[middle];
  if (values.size() % 2 == 1) return upper;
  const auto end = values.begin() + static_cast<std::ptrdiff_t>(middle);
  return (upper + *std::max_element(values.begin(), end)) / 2;
}

}  // namespace zpp::cli
