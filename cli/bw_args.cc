#include "cli/bw_args.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "cli/data_file.h"
#include "cli/parse.h"
#include "cli/rank_flags.h"
#include "collectives/communicator.h"
#include "common/env.h"
#include "common/strict_json.h"

namespace zpp::cli {
namespace {

constexpr std::array kMeasured = {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
                                  CollectiveKind::kAllReduce, CollectiveKind::kAllToAll,
                                  CollectiveKind::kBroadcast};

Result<CollectiveKind> ParseKind(const std::string& name) {
  for (const CollectiveKind kind : kMeasured) {
    if (CollectiveName(kind) == name) return kind;
  }
  return InvalidArgument("unknown collective '" + Printable(name) +
                         "': all_gather, reduce_scatter, all_reduce, all_to_all, broadcast or "
                         "codec");
}

Result<ReduceOp> ParseOp(const std::string& name) {
  if (name == "sum") return ReduceOp::kSum;
  if (name == "avg") return ReduceOp::kAvg;
  return InvalidArgument("-o takes sum or avg, not '" + Printable(name) + "'");
}

Result<Code> ParseCode(const std::string& name) {
  if (name == "linear") return Code::kLinear;
  if (name == "sqrt") return Code::kSqrt;
  return InvalidArgument("--code takes linear or sqrt, not '" + Printable(name) + "'");
}

Result<Rounding> ParseRounding(const std::string& name) {
  if (name == "nearest") return Rounding::kNearest;
  if (name == "stochastic") return Rounding::kStochastic;
  return InvalidArgument("--rounding takes nearest or stochastic, not '" + Printable(name) + "'");
}

// `text` as typed after --intra or --inter, with --block, --code and --rounding on top.
Result<QuantSpec> ResolveEncoding(const char* flag, const std::string& text, const BwFlags& flags,
                                  const BwArgs& args) {
  if (text == "none") return QuantSpec::None(args.dtype);
  Result<QuantSpec> parsed = ParseQuantSpec(text);
  if (!parsed.ok()) return InvalidArgument(std::string(flag) + ": " + parsed.status().message());
  QuantSpec spec = *parsed;
  if (!spec.compressed()) return spec;
  // Gradients are sent with the sqrt code unless the text or --code says otherwise.
  if (spec.format == Format::kInt4 && text == "int4" && args.reduces()) spec.code = Code::kSqrt;
  return WithSpecFlags(flags, spec);
}

// The first flag about compression, for collectives that have none.
Status RefuseEncodings(const BwFlags& flags, CollectiveKind kind) {
  const std::pair<const char*, bool> given[] = {
      {"--intra", !flags.intra.empty()},       {"--inter", !flags.inter.empty()},
      {"--block", flags.block.has_value()},    {"--code", !flags.code.empty()},
      {"--rounding", !flags.rounding.empty()},
  };
  for (const auto& [flag, is_given] : given) {
    if (!is_given) continue;
    return InvalidArgument(std::string(CollectiveName(kind)) + " is never compressed: " + flag +
                           " does not apply to it");
  }
  return {};
}

Status ResolvePolicy(const BwFlags& flags, BwArgs* args) {
  ZPP_RETURN_IF_ERROR(CheckSpecFlags(flags));
  args->policy.flat = flags.flat;
  const bool compresses = args->reduces() || args->kind == CollectiveKind::kAllGather;
  if (!compresses) return RefuseEncodings(flags, args->kind);
  const std::string intra = flags.intra.empty() ? "int8" : flags.intra;
  const std::string inter = flags.inter.empty() ? (args->reduces() ? "int4" : "int8") : flags.inter;
  ZPP_ASSIGN_OR_RETURN(args->policy.intra, ResolveEncoding("--intra", intra, flags, *args));
  ZPP_ASSIGN_OR_RETURN(args->policy.inter, ResolveEncoding("--inter", inter, flags, *args));
  args->policy.min_compress_bytes = 0;  // what was asked for is what is measured
  return {};
}

Status ResolveRanks(const BwFlags& flags, const LaunchEnv* launched, BwArgs* args) {
  ZPP_ASSIGN_OR_RETURN(const RankCounts counts,
                       ResolveRankFlags({flags.ranks, flags.nodes}, launched));
  args->ranks = counts.ranks;
  args->nodes = counts.nodes;
  args->ranks_here = counts.ranks > 0 ? counts.ranks : launched->local_size.value_or(1);
  return {};
}

// A number that may not have been given.
Status CheckGiven(const char* flag, const std::optional<double>& value, double low, double high) {
  return value ? CheckRange(flag, *value, low, high) : Status();
}

Status ResolveNumbers(const BwFlags& flags, BwArgs* args) {
  ZPP_RETURN_IF_ERROR(CheckGiven("-n", flags.iters, 1, 1e6));
  ZPP_RETURN_IF_ERROR(CheckGiven("-w", flags.warmup, 0, 1e6));
  ZPP_RETURN_IF_ERROR(CheckGiven("--timeout", flags.timeout_s, 0.1, 86400));
  ZPP_RETURN_IF_ERROR(CheckGiven("-D", flags.seconds, 0.01, 86400));
  ZPP_RETURN_IF_ERROR(CheckGiven("--inter-gbits", flags.inter_gbits, 1e-3, 1e5));
  ZPP_RETURN_IF_ERROR(CheckGiven("--link-gbits", flags.link_gbits, 1e-3, 1e5));
  ZPP_RETURN_IF_ERROR(CheckGiven("--threads", flags.threads, 1, kMaxCodecThreads));
  args->iters = flags.iters.value_or(args->iters);
  args->warmup = flags.warmup.value_or(args->warmup);
  args->seconds = flags.seconds.value_or(0);
  args->timeout_s = flags.timeout_s.value_or(args->timeout_s);
  args->inter_gbits = flags.inter_gbits.value_or(0);
  args->link_gbits = flags.link_gbits.value_or(args->inter_gbits);
  args->threads = flags.threads.value_or(args->threads);
  if (flags.chunk.empty()) return {};
  ZPP_ASSIGN_OR_RETURN(args->chunk_bytes, ParseSize("--chunk", flags.chunk));
  return {};
}

// Input, output and, per rank, about as much again on the wire.
Status CheckMemory(const BwArgs& args) {
  const double physical =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const double wanted = 3.0 * static_cast<double>(args.sizes_bytes.back()) * args.ranks_here;
  if (wanted <= physical) return {};
  char text[160];
  std::snprintf(
      text, sizeof text,
      "a vector of %.4g GB on %d rank(s) takes about %.4g GB, but this machine has %.4g GB",
      static_cast<double>(args.sizes_bytes.back()) / 1e9, args.ranks_here, wanted / 1e9,
      physical / 1e9);
  return InvalidArgument(text);
}

}  // namespace

Result<DType> ParseFloatType(const std::string& text) {
  const Result<DType> dtype = ParseDType(text);
  if (dtype.ok() && IsFloat(*dtype)) return dtype;
  return InvalidArgument("-d takes fp32, fp16 or bf16, not '" + Printable(text) + "'");
}

Status CheckSpecFlags(const BwFlags& flags) {
  if (!flags.code.empty()) ZPP_RETURN_IF_ERROR(ParseCode(flags.code).status());
  if (!flags.rounding.empty()) ZPP_RETURN_IF_ERROR(ParseRounding(flags.rounding).status());
  if (!flags.block) return {};
  QuantSpec spec = QuantSpec::Int8();
  spec.block_elems = *flags.block;
  const Status valid = Validate(spec);
  return valid.ok() ? valid : InvalidArgument("--block: " + valid.message());
}

QuantSpec WithSpecFlags(const BwFlags& flags, QuantSpec spec) {
  if (spec.format == Format::kInt4 && !flags.code.empty()) spec.code = *ParseCode(flags.code);
  if (!flags.rounding.empty()) spec.rounding = *ParseRounding(flags.rounding);
  if (flags.block) spec.block_elems = *flags.block;
  return spec;
}

bool AsksForSizes(const BwFlags& flags) {
  return !flags.min_size.empty() || !flags.max_size.empty() || flags.factor ||
         !flags.one_size.empty() || flags.all_sizes;
}

Result<std::vector<int64_t>> ResolveSizes(const BwFlags& flags) {
  const bool range = !flags.min_size.empty() || !flags.max_size.empty() || flags.factor;
  if ((range ? 1 : 0) + (flags.one_size.empty() ? 0 : 1) + (flags.all_sizes ? 1 : 0) > 1) {
    return InvalidArgument("give the sizes once: -b/-e/-f, or -s, or -a");
  }
  if (!flags.one_size.empty()) {
    ZPP_ASSIGN_OR_RETURN(const int64_t size, ParseSize("-s", flags.one_size));
    return std::vector<int64_t>{size};
  }
  int64_t low = flags.all_sizes ? 8 : int64_t{1} << 20;
  int64_t high = int64_t{64} << 20;
  if (!flags.min_size.empty()) {
    ZPP_ASSIGN_OR_RETURN(low, ParseSize("-b", flags.min_size));
    if (flags.max_size.empty()) high = std::max(high, low);
  }
  if (!flags.max_size.empty()) {
    ZPP_ASSIGN_OR_RETURN(high, ParseSize("-e", flags.max_size));
    if (flags.min_size.empty()) low = std::min(low, high);
  }
  const double factor = flags.factor.value_or(flags.all_sizes ? 2 : 4);
  if (!(factor > 1) || factor > 1e6) {
    return InvalidArgument("-f must be a number above 1");
  }
  if (low > high) return InvalidArgument("-b is larger than -e");
  std::vector<int64_t> sizes;
  for (int64_t size = low;;) {
    sizes.push_back(size);
    const double next = std::max(static_cast<double>(size) * factor, static_cast<double>(size) + 1);
    if (next > static_cast<double>(high)) break;
    size = static_cast<int64_t>(next);
    if (sizes.size() > 10000) return InvalidArgument("-f gives more than 10000 sizes");
  }
  return sizes;
}

Result<BwArgs> ResolveBw(const BwFlags& flags, const LaunchEnv* launched) {
  BwArgs args;
  static_cast<PlainFlags&>(args) = flags;
  ZPP_ASSIGN_OR_RETURN(args.kind, ParseKind(flags.collective));
  if (flags.all_targets) return InvalidArgument("--all-targets applies to codec only");
  if (!flags.dtype.empty()) {
    ZPP_ASSIGN_OR_RETURN(args.dtype, ParseFloatType(flags.dtype));
  }
  if (!flags.op.empty()) {
    ZPP_ASSIGN_OR_RETURN(args.op, ParseOp(flags.op));
  }
  ZPP_RETURN_IF_ERROR(ResolvePolicy(flags, &args));
  ZPP_RETURN_IF_ERROR(ResolveRanks(flags, launched, &args));
  ZPP_RETURN_IF_ERROR(ResolveNumbers(flags, &args));
  ZPP_ASSIGN_OR_RETURN(args.sizes_bytes, ResolveSizes(flags));
  args.size_of_data = !args.data.empty() && !AsksForSizes(flags);
  return args;
}

Status ResolveHere(BwArgs* args) {
  if (!args->data.empty()) {
    ZPP_ASSIGN_OR_RETURN(const DataFile file, DataFile::Open(args->data, args->dtype));
    if (args->size_of_data) args->sizes_bytes = {file.elems() * SizeOf(args->dtype)};
  }
  return CheckMemory(*args);
}

int64_t CountFor(CollectiveKind kind, int64_t size_bytes, DType dtype, int world) {
  const int64_t elems = std::max<int64_t>(1, size_bytes / SizeOf(dtype));
  switch (kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return std::max<int64_t>(1, elems / world) * world;
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kBarrier:
      return elems;
  }
  return elems;
}

}  // namespace zpp::cli
