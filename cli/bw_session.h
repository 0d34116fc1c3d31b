// One rank's part in measuring a collective, over any communicator.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/bw_args.h"
#include "cli/bw_result.h"
#include "cli/bw_values.h"
#include "cli/bw_verify.h"
#include "collectives/communicator.h"
#include "common/buffer.h"

namespace zpp::cli {

class BwSession {
 public:
  // All are borrowed for the session's life. Every rank makes one with equal `args`.
  BwSession(const BwArgs& args, const Values& values, Communicator& comm)
      : args_(args), values_(values), comm_(comm) {}

  // Input and output for the largest size.
  Status Allocate();
  // Collective: measures and verifies one size. The row is complete on every rank.
  Result<BwRow> Measure(int64_t size_bytes);
  // Collective: who takes part.
  Result<std::vector<RankPlace>> Places();

 private:
  // One way of running: what it is told, and what came out.
  struct Mode {
    CollectivePolicy policy;
    std::vector<double> times_s;      // this rank's, per iteration
    std::vector<int64_t> sent_bytes;  // per tier, in all timed iterations
    Verdict verdict;
  };

  ConstVec Input(int64_t count) const;
  Vec Output(int64_t count) const;
  void FillInput(int64_t count);
  void Poison(int64_t count);
  CallOptions CallFor(const Mode& mode) const;
  Status RunOnce(const Mode& mode, int64_t count);
  Status TimeOnce(Mode* mode, int64_t count);
  Status IterateAll(std::vector<Mode>* modes, int64_t count);
  Status VerifyOnce(Mode* mode, int64_t count);
  Result<bool> GoOn(int done, Deadline end);
  Result<BwRun> Summarize(const Mode& mode, int64_t size_bytes, int64_t count);
  std::optional<Fabric> KnownFabric() const;
  Status Explain(const Mode& mode, int64_t count, BwRun* run);

  const BwArgs& args_;
  const Values& values_;
  Communicator& comm_;
  Buffer in_, out_;
};

}  // namespace zpp::cli
