#include "cli/codec_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/bw_json.h"
#include "cli/bw_rank.h"
#include "cli/command.h"
#include "cli/data_file.h"
#include "cli/interrupt.h"
#include "cli/json_file.h"
#include "cli/parse.h"
#include "cli/version.h"

namespace zpp::cli {
namespace {

using nlohmann::json;

// The first flag about what a codec does not have: every flag applies or is refused.
Status RefuseFlagsOfCollectives(const BwFlags& flags) {
  constexpr const char* kOneCore = "runs on one core";
  constexpr const char* kByTime = "measures by time: -D";
  struct {
    const char* flag;
    bool given;
    const char* codec;  // why not
  } const rows[] = {
      {"--ranks", flags.ranks.has_value(), kOneCore},
      {"--nodes", flags.nodes.has_value(), kOneCore},
      {"--inter-gbits", flags.inter_gbits.has_value(), kOneCore},
      {"--link-gbits", flags.link_gbits.has_value(), kOneCore},
      {"--timeout", flags.timeout_s.has_value(), kOneCore},
      {"--threads", flags.threads.has_value(), kOneCore},
      {"--chunk", !flags.chunk.empty(), kOneCore},
      {"--explain", flags.explain, kOneCore},
      {"--flat", flags.flat, kOneCore},
      {"-o", !flags.op.empty(), "measures every operation"},
      {"-n", flags.iters.has_value(), kByTime},
      {"-w", flags.warmup.has_value(), kByTime},
      {"--report_gbits", flags.report_gbits, "reports GB/s of the vector's bytes"},
  };
  for (const auto& row : rows) {
    if (!row.given) continue;
    return InvalidArgument(std::string(row.flag) + " does not apply to codec, which " + row.codec);
  }
  return {};
}

Status ResolveSpecs(const BwFlags& flags, CodecBenchArgs* args) {
  std::vector<std::string> names;
  for (const std::string& name : {flags.intra, flags.inter}) {
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  if (!names.empty()) args->specs.clear();
  for (const std::string& name : names) {
    ZPP_ASSIGN_OR_RETURN(const QuantSpec spec, ParseQuantSpec(name));
    if (!spec.compressed())
      return InvalidArgument("codec measures int8 or int4, not '" + name + "'");
    args->specs.push_back(spec);
  }
  ZPP_RETURN_IF_ERROR(CheckSpecFlags(flags));
  for (QuantSpec& spec : args->specs) spec = WithSpecFlags(flags, spec);
  // --code makes linear and sqrt the same.
  const auto end = std::unique(args->specs.begin(), args->specs.end());
  args->specs.erase(end, args->specs.end());
  return {};
}

// Eight times the largest vector, as MeasureCodec says.
Status CheckCodecMemory(const CodecBenchArgs& args) {
  const double physical =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const int64_t largest = *std::max_element(args.counts.begin(), args.counts.end());
  if (8.0 * 4.0 * static_cast<double>(largest) <= physical) return {};
  return InvalidArgument("a vector of " + std::to_string(largest) +
                         " elements is too large for this machine's memory");
}

json RowJson(const CodecRow& row) {
  return {{"op", row.op},
          {"format", row.format},
          {"code", row.code},
          {"rounding", row.rounding},
          {"dtype", DTypeName(row.dtype)},
          {"block", row.block},
          {"count", row.count},
          {"target", row.target},
          {"GBps", row.gb_per_s},
          {"ratio", row.ratio},
          {"of_roof", row.of_roof},
          {"rel_error", row.rel_error}};
}

// The file's values, up to the largest vector.
Status LoadValues(const BwFlags& flags, const CodecBenchArgs& args, std::vector<float>* values) {
  if (flags.data.empty()) return {};
  ZPP_ASSIGN_OR_RETURN(const DataFile file, DataFile::Open(flags.data, args.dtypes.front()));
  const int64_t largest = *std::max_element(args.counts.begin(), args.counts.end());
  values->resize(static_cast<size_t>(std::min(largest, file.elems())));
  return file.Fill(0, DType::kF32, std::as_writable_bytes(std::span(*values)));
}

Result<std::vector<CodecRow>> Measure(const BwFlags& flags, std::vector<float>* values) {
  ZPP_ASSIGN_OR_RETURN(CodecBenchArgs args, ResolveCodec(flags));
  ZPP_RETURN_IF_ERROR(LoadValues(flags, args, values));
  args.data = *values;
  return MeasureCodec(args);
}

}  // namespace

Result<CodecBenchArgs> ResolveCodec(const BwFlags& flags) {
  CodecBenchArgs args;
  ZPP_RETURN_IF_ERROR(RefuseFlagsOfCollectives(flags));
  if (!flags.dtype.empty()) {
    ZPP_ASSIGN_OR_RETURN(const DType dtype, ParseFloatType(flags.dtype));
    args.dtypes = {dtype};
  }
  ZPP_RETURN_IF_ERROR(ResolveSpecs(flags, &args));
  if (AsksForSizes(flags)) {
    ZPP_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ResolveSizes(flags));
    args.counts.clear();
    for (const int64_t size : sizes) {
      args.counts.push_back(std::max<int64_t>(1, size / SizeOf(args.dtypes.front())));
    }
  }
  ZPP_RETURN_IF_ERROR(CheckCodecMemory(args));
  if (flags.seconds) {
    ZPP_RETURN_IF_ERROR(CheckRange("-D", *flags.seconds, 0.001, 3600));
    args.min_s = *flags.seconds;
  }
  if (!flags.json.empty()) ZPP_RETURN_IF_ERROR(CheckJsonPath(flags.json));
  args.all_targets = flags.all_targets;
  return args;
}

std::string CodecTable(const std::vector<CodecRow>& rows) {
  std::string text =
      "# op                 format  code    rounding    dtype  block     count  target          "
      "GB/s  x memcpy  of roof  rel error\n";
  for (const CodecRow& row : rows) {
    char line[256];
    std::snprintf(line, sizeof line,
                  "  %-18s %-7s %-7s %-11s %-5s %6d %9lld  %-12s %8.2f  %8.2f  %7.2f  %9.4g\n",
                  row.op.c_str(), row.format.c_str(), row.code.c_str(), row.rounding.c_str(),
                  std::string(DTypeName(row.dtype)).c_str(), row.block,
                  static_cast<long long>(row.count), row.target.c_str(), row.gb_per_s, row.ratio,
                  row.of_roof, row.rel_error);
    text += line;
  }
  return text;
}

int RunCodec(const BwFlags& flags) {
  InterruptWatch interrupts;
  interrupts.OnSignal([&flags](int signal) {
    if (!flags.json.empty()) {
      static_cast<void>(WriteJson(flags.json, ErrorJson("codec", "interrupted by a signal")));
    }
    _exit(128 + signal);
  });
  std::vector<float> values;
  const Result<std::vector<CodecRow>> rows = Measure(flags, &values);
  if (!rows.ok()) return ReportBadInput(flags.json, "codec", rows.status());
  std::fputs(CodecTable(*rows).c_str(), flags.json == "-" ? stderr : stdout);
  if (flags.json.empty()) return kExitOk;
  json results = json::array();
  for (const CodecRow& row : *rows) results.push_back(RowJson(row));
  return Report(
      WriteJson(flags.json, {{"version", kVersion},
                             {"collective", "codec"},
                             {"data", flags.data.empty() ? json(nullptr) : json(flags.data)},
                             {"results", results}}));
}

}  // namespace zpp::cli
