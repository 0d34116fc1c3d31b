#include "common/deadline.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace zpp {

Deadline Deadline::In(double seconds) {
  constexpr double kLongest_s = 1e9;  // about 31 years: beyond that it is Never()
  if (!(seconds > 0)) seconds = 0;    // catches NaN too
  if (seconds >= kLongest_s) return Never();
  return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(seconds)));
}

double Deadline::remaining_s() const {
  if (never()) return std::numeric_limits<double>::infinity();
  return std::max(0.0, std::chrono::duration<double>(when_ - Clock::now()).count());
}

int Deadline::remaining_ms(int cap_ms) const {
  if (never()) return cap_ms;
  return static_cast<int>(std::min<double>(cap_ms, std::ceil(remaining_s() * 1e3)));
}

}  // namespace zpp
