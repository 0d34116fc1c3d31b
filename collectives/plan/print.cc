// Plans for people.
#include <algorithm>

#include "collectives/plan/plan.h"

namespace zpp {
namespace {

constexpr uint32_t kMostLines = 8;  // of one sort in one stage
constexpr uint32_t kMostParts = 6;

class Printer {
 public:
  Printer(const Plan& plan, const Topology& topology) : plan_(plan), topology_(topology) {}

  std::string Run() {
    text_ = std::string(CollectiveName(plan_.kind)) + ", rank " + std::to_string(plan_.rank) +
            " of " + std::to_string(plan_.world) + Where(plan_.rank) + "\n";
    text_ += "why: " + plan_.reason + "\n";
    for (size_t k = 0; k < plan_.stages.size(); ++k) PrintStage(k);
    return std::move(text_);
  }

 private:
  std::string Where(int rank) const {
    if (topology_.tiers() < 2 || rank < 0 || rank >= topology_.world()) return "";
    return " (node " + std::to_string(topology_.NodeOf(rank)) + ")";
  }

  // "{0,2,5}", "{0,1,2,3,4,5,.. 128 in all}"
  std::string Parts(const Span& span) const {
    std::string text = "{";
    for (uint32_t i = 0; i < std::min(span.count, kMostParts); ++i) {
      text += (i > 0 ? "," : "") + std::to_string(plan_.PartOf(span, i));
    }
    if (span.count > kMostParts) text += ",.. " + std::to_string(span.count) + " in all";
    return text + "}";
  }

  // "in{0,2}", "s3{1}"
  std::string Name(const Span& span) const {
    switch (plan_.slots[span.slot].place) {
      case Place::kInput:
        return "in" + Parts(span);
      case Place::kOutput:
        return "out" + Parts(span);
      case Place::kStage:
        return "s" + std::to_string(span.slot) + Parts(span);
    }
    return "";
  }

  std::string Verb(const Op& op) const {
    if (op.num_in > 1) return op.average ? "mean of" : "sum";
    const QuantSpec& in = plan_.slots[plan_.inputs[op.first_in].slot].spec;
    const QuantSpec& out = plan_.slots[op.out.slot].spec;
    if (op.average) return "divide";
    if (in == out) return "copy";
    if (in.compressed() && out.compressed()) return "recode";
    if (in.compressed()) return "decode";
    return out.compressed() ? "encode" : "convert";
  }

  void Line(const std::string& verb, const std::string& rest) {
    text_ += "  " + verb + std::string(verb.size() < 8 ? 8 - verb.size() : 1, ' ') + rest + "\n";
  }

  // Prints the first few of [begin, end) and counts the rest.
  template <typename Print>
  void Some(uint32_t begin, uint32_t end, Print print) {
    for (uint32_t i = begin; i < end && i < begin + kMostLines; ++i) print(i);
    if (end > begin + kMostLines) {
      Line("", ".. and " + std::to_string(end - begin - kMostLines) + " more");
    }
  }

  void PrintOp(const Op& op, bool meanwhile) {
    std::string rest;
    for (uint32_t q = 0; q < std::min(op.num_in, kMostLines); ++q) {
      rest += (q > 0 ? " + " : "") + Name(plan_.inputs[op.first_in + q]);
    }
    if (op.num_in > kMostLines) rest += " + .. " + std::to_string(op.num_in) + " in all";
    rest += " -> " + Name(op.out) + " " + ToString(plan_.slots[op.out.slot].spec);
    if (meanwhile) return Line("meanwhile", Verb(op) + " " + rest);
    Line(Verb(op), rest);
  }

  void PrintMessage(const char* verb, const char* way, const Message& message) {
    const std::string what =
        message.data.count == 0
            ? "a signal"
            : Name(message.data) + " " + ToString(plan_.slots[message.data.slot].spec);
    Line(verb, what + way + "rank " + std::to_string(message.peer) + Where(message.peer) +
                   ", tier " + std::to_string(message.tier));
  }

  void PrintStage(size_t k) {
    const Stage from = plan_.Begin(k), to = plan_.stages[k];
    text_ += "stage " + std::to_string(k) + "\n";
    Some(from.during_end, to.before_end, [&](uint32_t o) { PrintOp(plan_.ops[o], false); });
    Some(from.sends_end, to.sends_end,
         [&](uint32_t m) { PrintMessage("send", " to ", plan_.sends[m]); });
    Some(from.recvs_end, to.recvs_end,
         [&](uint32_t m) { PrintMessage("receive", " from ", plan_.recvs[m]); });
    Some(to.before_end, to.during_end, [&](uint32_t o) { PrintOp(plan_.ops[o], true); });
    const bool empty = from.during_end == to.during_end && from.sends_end == to.sends_end &&
                       from.recvs_end == to.recvs_end;
    if (empty) Line("nothing", "to do here, others are busy");
  }

  const Plan& plan_;
  const Topology& topology_;
  std::string text_;
};

}  // namespace

std::string ToText(const Plan& plan, const Topology& topology) {
  return Printer(plan, topology).Run();
}

}  // namespace zpp
