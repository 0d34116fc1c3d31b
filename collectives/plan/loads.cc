// What one rank's plan asks of links and codec.
#include "collectives/plan/simulator.h"

namespace zpp {
namespace {

class LoadCounter {
 public:
  LoadCounter(const Plan& plan, const Partition& parts, const Fabric& fabric, int chunks)
      : plan_(plan), parts_(parts), fabric_(fabric), chunks_(chunks) {}

  StageLoad Count(size_t stage) const {
    const size_t tiers = fabric_.tier.size();
    StageLoad load;
    load.out_bytes.assign(tiers, 0);
    load.in_bytes.assign(tiers, 0);
    load.messages.assign(tiers, 0);
    const Stage from = plan_.Begin(stage), to = plan_.stages[stage];
    for (uint32_t m = from.sends_end; m < to.sends_end; ++m) {
      Add(plan_.sends[m], &load.out_bytes, &load.messages);
    }
    for (uint32_t m = from.recvs_end; m < to.recvs_end; ++m) {
      Add(plan_.recvs[m], &load.in_bytes, &load.messages);
    }
    load.before_s = OpsSeconds(from.during_end, to.before_end);
    load.during_s = OpsSeconds(to.before_end, to.during_end);
    return load;
  }

 private:
  double Bytes(const Span& span) const {
    return static_cast<double>(SpanBytes(plan_, parts_, span, 0, 1)) / chunks_;
  }
  void Add(const Message& message, std::vector<double>* bytes,
           std::vector<int32_t>* messages) const {
    (*bytes)[message.tier] += Bytes(message.data);
    ++(*messages)[message.tier];
  }
  double OpsSeconds(uint32_t begin, uint32_t end) const {
    double seconds = 0;
    for (uint32_t o = begin; o < end; ++o) {
      const Op& op = plan_.ops[o];
      double bytes = Bytes(op.out);
      for (uint32_t q = 0; q < op.num_in; ++q) bytes += Bytes(plan_.inputs[op.first_in + q]);
      seconds += fabric_.op_s + bytes / fabric_.codec_bytes_per_s;
    }
    return seconds;
  }

  const Plan& plan_;
  const Partition& parts_;
  const Fabric& fabric_;
  int chunks_;
};

}  // namespace

std::vector<StageLoad> LoadsOf(const Plan& plan, const Partition& parts, const Fabric& fabric,
                               int chunks) {
  const LoadCounter counter(plan, parts, fabric, chunks);
  std::vector<StageLoad> loads;
  for (size_t k = 0; k < plan.stages.size(); ++k) loads.push_back(counter.Count(k));
  return loads;
}

}  // namespace zpp
