#include "cli/bw_json.h"

#include <nlohmann/json.hpp>

#include "cli/version.h"

namespace zpp::cli {
namespace {

using nlohmann::json;

std::string FormatName(const QuantSpec& spec) {
  switch (spec.format) {
    case Format::kNone:
      return "none";
    case Format::kInt8:
      return "int8";
    case Format::kInt4:
      return "int4";
  }
  return "none";
}

json SpecJson(const CollectivePolicy& policy) {
  const QuantSpec& main = policy.inter.compressed() ? policy.inter : policy.intra;
  return {{"intra", FormatName(policy.intra)},
          {"inter", FormatName(policy.inter)},
          {"block", main.block_elems},
          {"intra_spec", ToString(policy.intra)},
          {"inter_spec", ToString(policy.inter)},
          {"flat", policy.flat}};
}

json RunJson(const BwRun& run) {
  return {{"time_us", run.time_us},
          {"alg_bw", run.alg_bw},
          {"bus_bw", run.bus_bw},
          {"wire_bytes", {{"intra", run.wire.intra}, {"inter", run.wire.inter}}},
          {"planned_wire_bytes", {{"intra", run.planned.intra}, {"inter", run.planned.inter}}},
          {"nwrong", run.nwrong},
          {"reason", run.reason}};
}

json RowJson(const BwRow& row) {
  json out = {{"size", row.size_bytes},       {"count", row.count},
              {"iterations", row.iterations}, {"baseline", RunJson(row.baseline)},
              {"compressed", nullptr},        {"speedup", nullptr}};
  if (row.baseline.predicted_us) out["baseline"]["predicted_us"] = *row.baseline.predicted_us;
  if (!row.compressed) return out;
  out["compressed"] = RunJson(*row.compressed);
  out["compressed"]["rel_error"] = row.compressed->rel_error;
  const auto& predicted = row.compressed->predicted_us;
  out["compressed"]["predicted_us"] = predicted ? json(*predicted) : json(nullptr);
  out["speedup"] = row.speedup();
  return out;
}

}  // namespace

json ToJson(const BwArgs& args, const BwReport& report) {
  json results = json::array();
  for (const BwRow& row : report.rows) results.push_back(RowJson(row));
  const bool known = report.topology.world() > 0;
  json out = {{"version", kVersion},
              {"collective", CollectiveName(args.kind)},
              {"ranks", known ? report.topology.world() : args.ranks},
              {"nodes", known ? report.topology.num_nodes() : args.nodes},
              {"dtype", DTypeName(args.dtype)},
              {"op", args.op == ReduceOp::kSum ? "sum" : "avg"},
              {"spec", SpecJson(args.policy)},
              {"topology", nullptr},
              {"transport", report.transport},
              {"data", args.data.empty() ? json(nullptr) : json(args.data)},
              {"inter_gbits", args.inter_gbits > 0 ? json(args.inter_gbits) : json(nullptr)},
              {"results", results}};
  if (known) out["topology"] = json::parse(report.topology.ToJson(), nullptr, false);
  if (!report.error.empty()) out["error"] = report.error;
  return out;
}

json ErrorJson(const std::string& collective, const std::string& error) {
  return {{"version", kVersion},
          {"collective", collective},
          {"results", json::array()},
          {"error", error}};
}

}  // namespace zpp::cli
