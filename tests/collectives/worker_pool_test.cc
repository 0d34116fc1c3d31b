// The threads that share out codec work.
#include "collectives/exec/worker_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "common/deadline.h"

namespace zpp {
namespace {

TEST(WorkerPool, DoesEachPieceOnce) {
  for (int threads : {1, 2, 5}) {
    WorkerPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t count : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(count));
      int64_t between = 0;
      pool.Run(
          count, [&](int64_t i) { ++done[static_cast<size_t>(i)]; }, [&] { ++between; });
      for (const auto& times : done) EXPECT_EQ(times, 1);
      EXPECT_LE(between, count);
    }
  }
}

// The child has none of the threads: to join them, or to destroy what they wait on, would never
// end.
TEST(WorkerPool, CanBeDestroyedInAForkedChild) {
  auto pool = std::make_unique<WorkerPool>(4);
  pool->Run(
      8, [](int64_t) {}, [] {});
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    pool.reset();
    _exit(7);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << "status " << status;
}

}  // namespace
}  // namespace zpp
