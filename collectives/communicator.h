// A group of ranks and the collectives they run together.
//
// Every rank calls the same collectives in the same order with the same sizes and options. One
// thread at a time uses a communicator; Abort() may come from any thread. The first failure sticks:
// later calls return it at once. After an error the contents of an output are unspecified. Inputs
// are never modified unless the call is in place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/bootstrap/out_of_band.h"
#include "collectives/feedback.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/simulator.h"
#include "collectives/policy.h"
#include "collectives/transport/transport.h"
#include "collectives/work.h"
#include "common/deadline.h"
#include "common/status.h"
#include "quant/codec.h"
#include "topology/topology.h"

namespace zpp {

inline constexpr int kMaxCodecThreads = 64;

struct CommunicatorOptions {
  CollectivePolicy policy = {};  // lossless unless asked
  double timeout_s = 30;         // of a collective that is given no deadline
  int codec_threads = 1;         // to kMaxCodecThreads; does not change a bit of the results
  // fp32 bytes of a part per chunk; 0: chosen by size. Equal on all ranks.
  int64_t chunk_bytes = 0;
  bool check_wire = false;  // check every scale and code that arrives
};

// How one call differs from the communicator's defaults.
struct CallOptions {
  ReduceOp op = ReduceOp::kSum;
  std::optional<CollectivePolicy> policy = {};  // the communicator's when absent
  std::optional<Deadline> deadline = {};        // the communicator's timeout_s when absent
  // Elements of each rank's shard, for shards of unequal size; empty: equal shares (AllReduce: on
  // the block grid).
  std::span<const int64_t> shard_elems = {};
  NoiseKey noise = {};  // stochastic rounding: the same seed and step on all ranks
  // Of what this rank encoded (with feedback: residual included): added to, never reset; complete
  // when the call has ended well.
  ErrorStats* stats = nullptr;
  // The same, in place of `stats`, of what a reduction's outermost hop encoded: the hop across
  // nodes, or the only one.
  ErrorStats* last_hop_stats = nullptr;
  // ReduceScatter and AllReduce: residuals that MakeFeedback made for this vector's shape, on all
  // ranks or on none. Borrowed until the call has ended; unspecified after an error. At a hop that
  // has them each part is encoded as h = sum + residual, and what h lost becomes the residual.
  ReduceFeedback* feedback = nullptr;
};

// Bytes this rank sent, per tier, since the communicator was made.
struct Traffic {
  std::vector<int64_t> sent_bytes;
  int64_t messages = 0;
};

class Communicator {
 public:
  // Takes a transport whose ranks all call this. The ranks have already agreed on `topology` and
  // `options` (ConnectFromEnv and its kin do that); a world of one needs no peer and no network.
  static Result<std::unique_ptr<Communicator>> Create(std::unique_ptr<Transport> transport,
                                                      std::shared_ptr<ControlPlane> control,
                                                      Topology topology,
                                                      const CommunicatorOptions& options);
  ~Communicator();

  int rank() const;
  int world() const;
  const Topology& topology() const;
  const CommunicatorOptions& options() const;
  Transport& transport();

  // out = the shards of all ranks in rank order; out.elems = the sum of the shards. In place:
  // in.data is the own shard's place in out.
  Status AllGather(ConstVec in, Vec out, const CallOptions& call = {});
  // out = this rank's shard of the reduced vector. In place: out.data is the own shard's place in
  // in.
  Status ReduceScatter(ConstVec in, Vec out, const CallOptions& call = {});
  // In place: out.data == in.data.
  Status AllReduce(ConstVec in, Vec out, const CallOptions& call = {});
  // Block j of `in` goes to rank j; block i of `out` came from rank i. elems is a multiple of
  // world. Never compressed.
  Status AllToAll(ConstVec in, Vec out, const CallOptions& call = {});
  // Never compressed.
  Status Broadcast(Vec data, int root, const CallOptions& call = {});
  Status Barrier(const CallOptions& call = {});

  // The same, started: bytes move in Poll(), Wait() and in later calls. Buffers stay borrowed until
  // the Work has ended. Works of a communicator run in the order they were started. An argument
  // that is wrong gives a Work that has failed.
  Work StartAllGather(ConstVec in, Vec out, const CallOptions& call = {});
  Work StartReduceScatter(ConstVec in, Vec out, const CallOptions& call = {});
  Work StartAllReduce(ConstVec in, Vec out, const CallOptions& call = {});
  Work StartAllToAll(ConstVec in, Vec out, const CallOptions& call = {});
  Work StartBroadcast(Vec data, int root, const CallOptions& call = {});
  Work StartBarrier(const CallOptions& call = {});

  // Residuals, all zero, for reductions of `elems` elements as `call` describes them: its op,
  // shard_elems and policy's `flat` count. Equal shares without shard_elems; an all-reduce has its
  // own, whose borders lie on kFeedbackTile_elems, and residuals for its gather too. No
  // communication. kInvalidArgument, kResourceExhausted.
  Result<ReduceFeedback> MakeFeedback(DType dtype, int64_t elems, const CallOptions& call,
                                      FeedbackHops hops, ResidualType type,
                                      CollectiveKind kind = CollectiveKind::kReduceScatter);

  // Ranks that give the same `color` (>= 0) form a communicator of their own over this one's
  // transport, with its options; its ranks are ordered by `key`, then by rank here, and its
  // topology is this one's part. Every rank of this communicator calls it; a negative color gives a
  // null pointer. Blocks for one small all-gather, after the works that were started before.
  //
  // One thread at a time uses a communicator and all that were split from it. Works of different
  // ones move whenever any of them is polled or waited for. A failure of one fails all, and
  // lost_rank() is a rank of the root communicator. At most 31 that were split from one root live
  // at a time: kResourceExhausted. Each may outlive the one it was split from; Shutdown() of the
  // root ends all, of another only itself.
  Result<std::unique_ptr<Communicator>> Split(int color, int key = 0);

  // The plan that a call of this kind and size runs on this rank, and the bytes it sends per tier.
  // `elems` is the whole vector's; `root` matters to a broadcast only.
  Result<Plan> Explain(CollectiveKind kind, DType dtype, int64_t elems,
                       const CallOptions& call = {}, int root = 0);
  Result<std::vector<int64_t>> PlannedBytes(CollectiveKind kind, DType dtype, int64_t elems,
                                            const CallOptions& call = {}, int root = 0);
  // What such a call should take over `fabric`, by the simulator. A broadcast is priced from rank
  // 0.
  Result<double> PredictSeconds(CollectiveKind kind, DType dtype, int64_t elems,
                                const Fabric& fabric, const CallOptions& call = {});
  Traffic traffic() const;

  // Ends every call, here and (through the control plane) on the other ranks. Any thread.
  void Abort(const Status& why);
  // Why this communicator cannot be used any more; ok while it can.
  Status status() const;
  // Meets all ranks and lets go of them: the clean end. The destructor without it abandons the
  // peers.
  Status Shutdown(Deadline deadline);

 private:
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace zpp
