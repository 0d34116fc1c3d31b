#include "cli/bw_table.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "cli/version.h"

namespace zpp::cli {
namespace {

__attribute__((format(printf, 1, 2))) std::string Text(const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return text;
}

// As nccl-tests prints them: about four digits in seven columns.
std::string Number(double value) {
  if (value >= 1e5) return Text("%.0f", value);
  if (value >= 1e4) return Text("%.1f", value);
  return Text("%.2f", value);
}

const char* NcclType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float";
    case DType::kF16:
      return "half";
    case DType::kBF16:
      return "bfloat16";
    case DType::kByte:
      return "uint8";
  }
  return "?";
}

const char* NcclOp(const BwArgs& args) {
  if (!args.reduces()) return "none";
  return args.op == ReduceOp::kSum ? "sum" : "avg";
}

std::string Half(const BwArgs& args, const BwRun& run) {
  const double unit = args.report_gbits ? 8 : 1;
  return Text("  %7s  %6s  %6s  %6lld", Number(run.time_us).c_str(),
              Number(run.alg_bw * unit).c_str(), Number(run.bus_bw * unit).c_str(),
              static_cast<long long>(run.nwrong));
}

std::string Bytes(int64_t bytes) { return std::to_string(bytes); }

std::string ErrorText(double rel_error) {
  return std::isnan(rel_error) ? "unknown: no value is finite" : Text("%.3g", rel_error);
}

std::string RunLines(const char* name, const BwRow& row, const BwRun& run) {
  std::string text = Text("# %12lld  %-12s wire bytes inside nodes %s, across nodes %s",
                          static_cast<long long>(row.size_bytes), name,
                          Bytes(run.wire.intra).c_str(), Bytes(run.wire.inter).c_str());
  if (run.wire != run.planned) {
    text += " BUT PLANNED " + Bytes(run.planned.intra) + " and " + Bytes(run.planned.inter);
  }
  if (&run != &row.baseline) {
    const double ratio = run.wire.total() > 0 ? static_cast<double>(row.baseline.wire.total()) /
                                                    static_cast<double>(run.wire.total())
                                              : 1;
    text += Text(", ratio %.2f, relative error ", ratio) + ErrorText(run.rel_error);
  }
  if (run.predicted_us) text += Text(", predicted %s us", Number(*run.predicted_us).c_str());
  return text + "\n";
}

std::string Commented(const std::string& text) {
  std::string out = "# ";
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] == '\n' && i + 1 < text.size()) out += "# ";
  }
  if (out.back() != '\n') out += '\n';
  return out;
}

std::string ReasonLines(const char* name, const BwRun& run) {
  std::string text = run.reason.empty() ? "" : Text("# %s plan: ", name) + run.reason + "\n";
  if (!run.plan_text.empty()) text += Commented(run.plan_text);
  return text;
}

double AverageBusBw(const BwReport& report, bool compressed) {
  double sum = 0;
  for (const BwRow& row : report.rows) {
    sum += compressed && row.compressed ? row.compressed->bus_bw : row.baseline.bus_bw;
  }
  return report.rows.empty() ? 0 : sum / static_cast<double>(report.rows.size());
}

}  // namespace

bool Compresses(const BwArgs& args) { return !args.policy.lossless(); }

std::string TableHead(const BwArgs& args, const BwReport& report) {
  const std::string name(CollectiveName(args.kind));
  std::string text =
      Text("# zpp version %s\n# Collective test starting: %s\n", kVersion, name.c_str());
  text +=
      Text("# ranks %d nodes %d minBytes %lld maxBytes %lld warmup %d ", report.topology.world(),
           report.topology.num_nodes(), static_cast<long long>(args.sizes_bytes.front()),
           static_cast<long long>(args.sizes_bytes.back()), args.warmup);
  text += args.seconds > 0 ? Text("seconds %g\n", args.seconds) : Text("iters %d\n", args.iters);
  text += "# transport " + report.transport + "\n";
  if (Compresses(args)) {
    text += "# compressed: inside a node " + ToString(args.policy.intra) + ", across nodes " +
            ToString(args.policy.inter) + "\n";
  }
  for (const std::string& note : report.notes) text += "# " + note + "\n";
  text += "#\n# Using ranks\n";
  for (size_t r = 0; r < report.places.size(); ++r) {
    const RankPlace& place = report.places[r];
    text += Text("#  Rank %2zu Node %2d Pid %6d on %10s\n", r, place.node, place.pid,
                 place.host.c_str());
  }
  const char* unit = args.report_gbits ? "(Gb/s)" : "(GB/s)";
  text += Text("#\n# %11s  %12s  %8s  %6s  %6s  %7s  %32s  %32s\n", "", "", "", "", "", "",
               "uncompressed          ", "compressed           ");
  const std::string columns = "     time   algbw   busbw  #wrong";
  text +=
      Text("# %11s  %12s  %8s  %6s  %6s  %7s", "size", "count", "type", "redop", "root", "speedup");
  text += columns + columns + "\n";
  const std::string units = Text("  %7s  %6s  %6s  %6s", "(us)", unit, unit, "");
  text += Text("# %11s  %12s  %8s  %6s  %6s  %7s", "(B)", "(elements)", "", "", "", "");
  return text + units + units + "\n";
}

std::string TableRow(const BwArgs& args, const BwRow& row) {
  const char* root = args.kind == CollectiveKind::kBroadcast ? "0" : "-1";
  std::string text =
      Text("%13lld  %12lld  %8s  %6s  %6s  ", static_cast<long long>(row.size_bytes),
           static_cast<long long>(row.count), NcclType(args.dtype), NcclOp(args), root);
  text += row.compressed ? Text("%6.2fx", row.speedup()) : Text("%7s", "N/A");
  text += Half(args, row.baseline);
  if (row.compressed) return text + Half(args, *row.compressed) + "\n";
  return text + Text("  %7s  %6s  %6s  %6s\n", "N/A", "N/A", "N/A", "N/A");
}

std::string TableTail(const BwArgs& args, const BwReport& report) {
  std::string text;
  for (const BwRow& row : report.rows) {
    text += RunLines("uncompressed", row, row.baseline);
    if (row.compressed) text += RunLines("compressed", row, *row.compressed);
  }
  if (!report.rows.empty()) {
    const BwRow& last = report.rows.back();
    text += ReasonLines("uncompressed", last.baseline);
    if (last.compressed) text += ReasonLines("compressed", *last.compressed);
  }
  if (Compresses(args)) {
    text += Text("# Avg bus bandwidth uncompressed : %.6g\n", AverageBusBw(report, false));
  }
  text += Text("# Wire bytes as planned : %s\n", report.as_planned() ? "yes, to the byte" : "NO");
  const bool good = report.wrong() == 0;
  text += Text("# Out of bounds values : %lld %s\n", static_cast<long long>(report.wrong()),
               good ? "OK" : "FAILED");
  text += Text("# Avg bus bandwidth    : %.6g\n#\n", AverageBusBw(report, true));
  if (!report.error.empty()) text += "# Ended early: " + report.error + "\n";
  return text + "# Collective test concluded: " + std::string(CollectiveName(args.kind)) + "\n#\n";
}

}  // namespace zpp::cli
