// Reductions with error feedback over several steps, and a naive reference that knows no plans,
// parts, chunks or messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "topology/topology.h"

namespace zpp::test {

struct FeedbackCase {
  CollectiveKind kind = CollectiveKind::kReduceScatter;
  ReduceOp op = ReduceOp::kSum;
  FeedbackHops hops = FeedbackHops::kAll;
  ResidualType type = ResidualType::kF32;
  int64_t elems = 0;
  int steps = 1;
  std::vector<int64_t> shards = {};  // empty: equal ones
  CollectivePolicy policy = {
      .intra = QuantSpec::Int8(), .inter = QuantSpec::Int4(Code::kSqrt), .min_compress_bytes = 0};

  std::string ToString() const;
  CallOptions Call() const;
};

// Values without any structure that rounding would respect; others for each rank and step.
std::vector<float> FeedbackInput(int rank, int step, int64_t elems);

// What one rank saw.
struct FeedbackRun {
  std::vector<std::vector<float>> received;  // per step: the whole output
  // What this rank's residuals say its inputs would have to have more, per element.
  std::vector<double> owed;
  ErrorStats stats;
};
Result<FeedbackRun> RunFeedback(Communicator& comm, const FeedbackCase& c);
std::string DigestOf(const FeedbackRun& run);

// What every rank must receive, to the bit: fp32 in rank order, hop by hop as the topology nests.
std::vector<std::vector<float>> NaiveFeedback(const Topology& topology, const FeedbackCase& c);

// Borders of the shards in the whole vector, world + 1 of them.
std::vector<int64_t> BordersOf(const FeedbackCase& c, int world);

}  // namespace zpp::test
