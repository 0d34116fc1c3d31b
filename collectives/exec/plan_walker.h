// Walks a plan event by event and says, with addresses, what each event asks for: codec tasks, a
// batch of messages, or the messages to check once they have arrived. It never waits and never
// calls a transport, so that a driver may wait on the host, or put everything on a device stream
// instead.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/exec/codec_task.h"
#include "collectives/exec/memory_map.h"
#include "collectives/exec/prepared_plan.h"
#include "collectives/feedback.h"
#include "collectives/transport/transport.h"
#include "common/status.h"

namespace zpp {

struct WalkArgs {
  UserMemory user;
  std::byte* lanes = nullptr;
  uint64_t sequence = 0;  // of the communicator's collectives: part of every tag
  int group = 0;          // the communicator's id in its family: part of every tag
  std::span<const int32_t> root_ranks = {};  // what errors call the ranks; empty: as they are
  NoiseKey noise;
  ReduceFeedback* feedback = nullptr;  // null: no residuals
};

class PlanWalker {
 public:
  struct Batch {
    std::span<const SendOp> sends;
    std::span<const uint8_t> send_tiers;
    std::span<const RecvOp> recvs;
    bool empty() const { return sends.empty() && recvs.empty(); }
  };

  // From the first event. `prepared` stays borrowed until the walk has ended. Allocates only while
  // it meets shapes larger than before.
  void Begin(const PreparedPlan& prepared, const WalkArgs& args);
  bool done() const { return at_ == prepared_->events.size(); }
  const Event& event() const { return prepared_->events[at_]; }
  int lane() const { return map_.LaneOf(event().chunk); }
  void Next();

  // kBefore, kDuring: in order; those of one op are independent. They live until the next event.
  std::span<const CodecTask> Tasks() const { return tasks_; }
  // kStart. Memory of the spans lives until the next kStart; what they point to, until the wait.
  Batch Messages();
  // kWait, when all has arrived: every compressed piece must say that it is what the plan expects.
  // kDataLoss names the peer. `check_payload` also looks at every scale and code.
  Status CheckArrived(bool check_payload) const;

 private:
  // Ends of all stages before `stage`; one beyond the last is empty.
  Stage Before(int stage) const;
  void Enter();
  void AddOp(uint32_t op);
  void AddPlain(uint32_t op, uint32_t part);
  void AddCopy(uint32_t op, std::byte* out, std::span<const std::byte> in);
  void AddCoded(uint32_t op, uint32_t part);
  void AddResidual(CodecTask& task, const Span& out, uint32_t part) const;
  CodecTask& NewTask(CodecTask::Kind kind, uint32_t op);
  void AddSends(uint32_t index);     // of the plan's sends
  void AddReceives(uint32_t index);  // of the plan's receives
  Tag TagOf(int64_t piece) const;
  int NameOf(int peer) const;
  Status CheckMessage(const Message& message, bool check_payload) const;
  const QuantSpec& SpecOf(const Span& span) const { return prepared_->plan.slots[span.slot].spec; }

  const PreparedPlan* prepared_ = nullptr;
  WalkArgs args_;
  MemoryMap map_;
  size_t at_ = 0;
  std::vector<CodecTask> tasks_;
  std::vector<Operand> operands_;
  std::vector<SendOp> sends_;
  std::vector<uint8_t> send_tiers_;
  std::vector<RecvOp> recvs_;
};

}  // namespace zpp
