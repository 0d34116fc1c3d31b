// Indices first: a plan that passes here is safe to walk.
#include "collectives/plan/checker.h"

namespace zpp {
namespace {

bool InRange(uint64_t first, uint64_t count, uint64_t size) {
  return first <= size && count <= size - first;
}

class FormChecker {
 public:
  FormChecker(const Plan& plan, int64_t num_parts) : plan_(plan), num_parts_(num_parts) {}

  std::string Run() const {
    if (plan_.world < 1 || plan_.rank < 0 || plan_.rank >= plan_.world) {
      return Fault("it is not one of the plan's ranks");
    }
    for (const std::string& fault : {Parts(), Ops(), Messages(), Stages()}) {
      if (!fault.empty()) return fault;
    }
    return "";
  }

 private:
  std::string Fault(const std::string& what) const {
    return "rank " + std::to_string(plan_.rank) + ": " + what;
  }

  bool SpanInRange(const Span& span) const {
    return span.slot < plan_.slots.size() &&
           InRange(span.first, span.count, plan_.slots[span.slot].parts.count);
  }

  std::string Parts() const {
    for (PartId part : plan_.part_ids) {
      if (int64_t{part} >= num_parts_) return Fault("part " + std::to_string(part) + " is no part");
    }
    for (const Slot& slot : plan_.slots) {
      if (!InRange(slot.parts.first, slot.parts.count, plan_.part_ids.size())) {
        return Fault("a slot names parts out of range");
      }
    }
    return "";
  }

  std::string Ops() const {
    for (const Span& span : plan_.inputs) {
      if (!SpanInRange(span)) return Fault("an operand is out of range");
    }
    for (const Op& op : plan_.ops) {
      if (op.num_in == 0 || !InRange(op.first_in, op.num_in, plan_.inputs.size())) {
        return Fault("an op names operands out of range");
      }
      if (!SpanInRange(op.out)) return Fault("the result of an op is out of range");
    }
    return "";
  }

  std::string Messages() const {
    for (const std::vector<Message>* list : {&plan_.sends, &plan_.recvs}) {
      for (const Message& message : *list) {
        const std::string peer = std::to_string(message.peer);
        if (!SpanInRange(message.data)) return Fault("a message with " + peer + " is out of range");
        if (message.peer < 0 || message.peer >= plan_.world || message.peer == plan_.rank) {
          return Fault("a message with rank " + peer + ", which is no peer");
        }
      }
    }
    return "";
  }

  std::string Stages() const {
    Stage last;
    for (const Stage& stage : plan_.stages) {
      if (stage.before_end < last.during_end || stage.during_end < stage.before_end ||
          stage.sends_end < last.sends_end || stage.recvs_end < last.recvs_end) {
        return Fault("its stages do not ascend");
      }
      last = stage;
    }
    const bool complete = last.during_end == plan_.ops.size() &&
                          last.sends_end == plan_.sends.size() &&
                          last.recvs_end == plan_.recvs.size();
    return complete ? "" : Fault("its stages leave out ops or messages");
  }

  const Plan& plan_;
  int64_t num_parts_;
};

}  // namespace

std::string CheckWellFormed(const Plan& plan, int64_t num_parts) {
  return FormChecker(plan, num_parts).Run();
}

}  // namespace zpp
