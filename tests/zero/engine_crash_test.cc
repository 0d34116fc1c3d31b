// kill -9 of a whole training job at random moments, saving every 5 steps: resuming always works,
// and gives the bits of the unbroken run.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <random>

#include "tests/collectives/process_world.h"
#include "tests/harness/rank_processes.h"
#include "tests/harness/ranks.h"
#include "tests/zero/checkpoint_cases.h"
#include "tests/zero/engine_world.h"

namespace zpp::test {
namespace {

constexpr int kWorld = 2;
constexpr int kKills = 50;
constexpr int kSteps = 400;
constexpr int kSaveEvery_steps = 5;

// Rank 0 tells how far it has come.
class SharedStep {
 public:
  SharedStep() {
    void* memory = ::mmap(nullptr, sizeof(std::atomic<int64_t>), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    step_ = new (memory) std::atomic<int64_t>(0);
  }
  ~SharedStep() { ::munmap(step_, sizeof(std::atomic<int64_t>)); }
  std::atomic<int64_t>& operator*() const { return *step_; }

 private:
  std::atomic<int64_t>* step_;
};

Training TrainingIn(const std::string& dir, const SharedStep& step) {
  Training t{.config = PlainConfig(2), .params = MixedParams()};
  t.config.quantized_gradients = t.config.quantized_weights = true;
  t.config.zero_pp.enabled = true;
  t.config.zero_pp.quant_period = 7;
  t.steps = kSteps;
  t.after_step = [dir, &step](ZeroEngine& engine, const StepReport& report) -> Status {
    if (report.step % kSaveEvery_steps == 0) ZPP_RETURN_IF_ERROR(engine.Save(dir));
    *step = report.step;
    return {};
  };
  return t;
}

// Two nodes of one rank each, over UCX; ends with the weights' bytes as text.
Result<std::string> Job(int rank, const std::string& dir, const SharedStep& step) {
  const int sizes[] = {1, 1};
  ZPP_ASSIGN_OR_RETURN(const Topology topology, Topology::Nodes(sizes));
  ZPP_ASSIGN_OR_RETURN(UcxRank made, MakeUcxRank(rank, topology, 20));
  ZPP_ASSIGN_OR_RETURN(
      const auto comm,
      Communicator::Create(std::move(made.transport), std::move(made.control), topology, {}));
  Training t = TrainingIn(dir, step);
  if (CheckpointReader::Open(dir).ok()) t.resume_from = dir;
  ZPP_RETURN_IF_ERROR(comm->Barrier());
  ZPP_ASSIGN_OR_RETURN(const Trained trained, TrainRank(*comm, t));
  std::string bytes;
  for (const auto& w : trained.weights) {
    bytes.append(reinterpret_cast<const char*>(w.data()), w.size() * sizeof(float));
  }
  return std::to_string(std::hash<std::string>()(bytes)) + " of " + std::to_string(bytes.size());
}

TEST(EngineCrash, AKilledJobResumesToTheBitsOfAnUnbrokenOne) {
  const TempFolder unbroken_dir, dir;
  const SharedStep step;
  const auto unbroken =
      RunProcesses(kWorld, 60, [&](int rank) { return Job(rank, unbroken_dir.path(), step); });
  ASSERT_TRUE(AllOk(unbroken));

  std::mt19937_64 random(11);
  int64_t furthest = 0;
  int kills = 0;
  for (; kills < kKills; ++kills) {
    SCOPED_TRACE("kill " + std::to_string(kills));
    *step = 0;
    RankProcesses ranks(kWorld, [&](int rank) { return Job(rank, dir.path(), step); });
    const Deadline patience = Deadline::In(40);
    // Some way beyond where the last job came to, so that the whole training is walked through.
    const int64_t until = furthest + std::uniform_int_distribution<int64_t>(1, 9)(random);
    while (*step < std::min<int64_t>(until, kSteps - 1) && !patience.expired()) ::usleep(100);
    ASSERT_GT(*step, 0) << "no step in 40 s";
    ::usleep(std::uniform_int_distribution<useconds_t>(0, 8000)(random));
    furthest = std::max<int64_t>(furthest, *step);
    for (int rank = 0; rank < kWorld; ++rank) ranks.Signal(rank, SIGKILL);
    for (int rank = 0; rank < kWorld; ++rank) ranks.Reap(rank);
    if (furthest > kSaveEvery_steps) {
      const auto reader = CheckpointReader::Open(dir.path());
      ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    }
  }
  const auto resumed =
      RunProcesses(kWorld, 60, [&](int rank) { return Job(rank, dir.path(), step); });
  ASSERT_TRUE(AllOk(resumed));
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(resumed[static_cast<size_t>(rank)].value, unbroken[0].value);
  }
  // The jobs really were broken off on the way.
  EXPECT_GT(furthest, 2 * kKills);
  EXPECT_LT(furthest, kSteps);
}

}  // namespace
}  // namespace zpp::test
