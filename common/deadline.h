// The moment at which a blocking call gives up. Every call that may block takes one.
#pragma once

#include <chrono>
#include <string>

namespace zpp {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // `seconds` from now: 0 has already passed, infinity never comes; NaN and negative values count
  // as 0.
  static Deadline In(double seconds);
  static Deadline Never() { return Deadline(Clock::time_point::max()); }
  static Deadline At(Clock::time_point when) { return Deadline(when); }

  bool expired() const { return when_ != Clock::time_point::max() && Clock::now() >= when_; }
  bool never() const { return when_ == Clock::time_point::max(); }
  Clock::time_point when() const { return when_; }
  // 0 when expired; infinity for Never().
  double remaining_s() const;
  // For poll(2): rounded up, at least 0, at most `cap_ms`.
  int remaining_ms(int cap_ms) const;

  friend Deadline Earlier(Deadline a, Deadline b) { return a.when_ < b.when_ ? a : b; }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace zpp
