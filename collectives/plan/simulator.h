// What a collective should take: the busiest port of every tier, the codec's work, and how the
// executor's order of events overlaps them. A model, not a measurement: it knows nothing of
// congestion beyond a port, nor of noise.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan/plan.h"
#include "common/status.h"
#include "topology/topology.h"

namespace zpp {

struct Fabric {
  // Tier 0: the port of a rank. Tier t: the port of a level-t domain, shared by its ranks. Each
  // direction alone.
  std::vector<LinkModel> tier;
  double codec_bytes_per_s = 12e9;  // bytes that ops read and write, on one rank
  double op_s = 0.5e-6;             // of starting an op
  double start_s = 1e-6;            // of starting an exchange
  double message_s = 0.5e-6;        // of posting a message
};
// The topology's links. One of unknown speed is taken for shared memory (tier 0: 8 GB/s, 1 us) or
// for 10 Gbit/s Ethernet (1.25 GB/s, 30 us).
Fabric FabricOf(const Topology& topology);

// What one rank does in one stage, for the average chunk.
struct StageLoad {
  std::vector<double> out_bytes, in_bytes;  // per tier
  std::vector<int32_t> messages;            // per tier, sent and received
  double before_s = 0, during_s = 0;        // ops
  bool operator==(const StageLoad&) const = default;
};
std::vector<StageLoad> LoadsOf(const Plan& plan, const Partition& parts, const Fabric& fabric,
                               int chunks);

// One number per rank, from 0: ranks of one class have equal loads, as long as the parts are equal.
// The algorithm decides, not the topology alone: a regular topology has one class for an
// all-reduce, one per rank for a broadcast.
std::vector<int32_t> SymmetryClasses(const PlanRequest& request);

struct Price {
  double seconds = 0;
  double codec_s = 0;              // ops of the slowest rank, over all chunks
  std::vector<double> link_s;      // per tier: the busiest port's bytes / bytes_per_s
  std::vector<double> port_bytes;  // per tier: bytes through the busiest port, one direction
  int64_t plans_built = 0;         // one per class
};
// Builds one plan per class: milliseconds for 16 384 ranks on a regular topology. With more than
// 512 classes (uneven layouts of thousands of ranks) a sample of them is built, the others are
// taken to be like their neighbours.
Result<Price> PriceOf(const PlanRequest& request, const Partition& parts, const Pipeline& pipeline,
                      const Fabric& fabric);

// PriceOf(...).seconds.
Result<double> PredictSeconds(const PlanRequest& request, const Partition& parts,
                              const Pipeline& pipeline, const Fabric& fabric);

}  // namespace zpp
