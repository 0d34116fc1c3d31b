#include "common/deadline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace zpp {
namespace {

TEST(Deadline, ZeroNegativeAndNanHavePassed) {
  for (double seconds : {0.0, -1.0, -std::numeric_limits<double>::infinity(), std::nan("")}) {
    const Deadline deadline = Deadline::In(seconds);
    EXPECT_TRUE(deadline.expired()) << seconds;
    EXPECT_EQ(deadline.remaining_s(), 0.0);
    EXPECT_EQ(deadline.remaining_ms(100), 0);
  }
}

TEST(Deadline, NeverAndInfinityDoNotPass) {
  for (Deadline deadline : {Deadline::Never(), Deadline::In(1e300),
                            Deadline::In(std::numeric_limits<double>::infinity())}) {
    EXPECT_FALSE(deadline.expired());
    EXPECT_TRUE(deadline.never());
    EXPECT_TRUE(std::isinf(deadline.remaining_s()));
    EXPECT_EQ(deadline.remaining_ms(5), 5);
  }
}

TEST(Deadline, PollTimeRoundsUpAndIsCapped) {
  EXPECT_EQ(Deadline::In(3600).remaining_ms(20), 20);
  // A sleep must not round down to a busy loop in the last millisecond.
  const Deadline soon = Deadline::In(0.5);
  EXPECT_GE(soon.remaining_ms(1000), 1);
  EXPECT_LE(soon.remaining_ms(1000), 500);
}

TEST(Deadline, EarlierOfTwo) {
  const Deadline a = Deadline::In(1), b = Deadline::In(2);
  EXPECT_EQ(Earlier(a, b).when(), a.when());
  EXPECT_EQ(Earlier(b, Deadline::Never()).when(), b.when());
}

}  // namespace
}  // namespace zpp
