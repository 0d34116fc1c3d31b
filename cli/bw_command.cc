#include "cli/bw_command.h"

#include <memory>
#include <utility>

#include "cli/bw_args.h"
#include "cli/bw_rank.h"
#include "cli/codec_command.h"
#include "cli/json_file.h"
#include "cli/launcher.h"
#include "cli/rank_flags.h"
#include "collectives/connect.h"

namespace zpp::cli {
namespace {

// All that can be wrong is found here, once; only then ranks are started.
int LaunchRanks(BwArgs args, const BwFlags& flags) {
  Status status = args.json.empty() ? Status() : CheckJsonPath(args.json);
  if (status.ok()) status = ResolveHere(&args);
  if (status.ok()) status = CheckEnvironment(args.ranks, OptionsFor(args));
  if (!status.ok()) return ReportBadInput(args.json, flags.collective, status);
  LaunchSpec spec;
  spec.ranks = args.ranks;
  spec.args = WithoutRanksFlag(OwnArguments());
  if (!flags.nodes && args.nodes > 0) spec.args.push_back("--nodes=" + std::to_string(args.nodes));
  return Launch(spec);
}

int RunBw(const BwFlags& flags) {
  if (flags.collective == "codec") return RunCodec(flags);
  const auto refuse = [&flags](const Status& why) {
    return ReportBadInput(flags.json, flags.collective, why);
  };
  PreferFlags({{EnvVar::kTimeout, flags.timeout_s.has_value()},
               {EnvVar::kThreads, flags.threads.has_value()},
               {EnvVar::kChunkBytes, !flags.chunk.empty()},
               {EnvVar::kLocalSize, flags.nodes.has_value()},
               {EnvVar::kTopologyFile, flags.nodes.has_value()}});
  const Result<std::optional<LaunchEnv>> launched = LaunchedBy(flags.ranks);
  if (!launched.ok()) return refuse(launched.status());
  Result<BwArgs> args = ResolveBw(flags, *launched ? &**launched : nullptr);
  if (!args.ok()) return refuse(args.status());
  return args->ranks > 0 ? LaunchRanks(*std::move(args), flags)
                         : RunBwRank(*std::move(args), (*launched)->rank);
}

void AddSizeFlags(CLI::App& app, BwFlags* f) {
  FlagGroup(app, "Sizes")
      .Option("-b", f->min_size, "smallest vector in bytes, suffixes K M G (1M)")
      .Option("-e", f->max_size, "largest vector (64M)")
      .Option("-f", f->factor, "from one size to the next (4)")
      .Option("-s", f->one_size, "one size only")
      .Flag("-a", f->all_sizes, "all sizes: 8 to 64M by factors of 2")
      .Option("-d", f->dtype, "fp32, fp16 or bf16 (fp32)")
      .Option("--data", f->data, "values from a file: raw, or .safetensors");
}

void AddRankFlags(CLI::App& app, BwFlags* f) {
  FlagGroup(app, "Ranks")
      .Option("--ranks", f->ranks,
              "start N ranks on this host (4); not given under torchrun, mpirun or srun: theirs")
      .Option("--nodes", f->nodes, "declare M nodes (with --ranks: 2, or as ZPP_LOCAL_SIZE says)")
      .Option("--inter-gbits", f->inter_gbits, "throttle what crosses nodes, Gbit/s and node")
      .Option("--link-gbits", f->link_gbits,
              "what the link between nodes can do, for the prediction")
      .Option("--timeout", f->timeout_s, "seconds for connecting and for a collective (60)");
}

void AddEncodingFlags(CLI::App& app, BwFlags* f) {
  FlagGroup(app, "Compression")
      .Option("--intra", f->intra, "encoding inside a node: none, int8, int4 (int8)")
      .Option("--inter", f->inter,
              "encoding across nodes (int4 for reductions, int8 for all_gather)")
      .Option("--block", f->block, "elements that share a scale, 32 to 2048 (int8 256, int4 128)")
      .Option("--code", f->code, "int4's levels: linear or sqrt (sqrt for reductions)")
      .Option("--rounding", f->rounding, "nearest or stochastic (nearest)")
      .Flag("--flat", f->flat, "one hop over all ranks, whatever the nodes");
}

void AddRunFlags(CLI::App& app, BwFlags* f) {
  FlagGroup(app, "Running")
      .Option("-o", f->op, "sum or avg (sum)")
      .Option("-n", f->iters, "iterations; the result of the last one is checked (20)")
      .Option("-w", f->warmup, "iterations before, not timed (3)")
      .Option("-D", f->seconds, "seconds per size, instead of -n")
      .Option("--threads", f->threads, "codec threads per rank (1)")
      .Option("--chunk", f->chunk, "bytes of a part per chunk (chosen by size)");
}

void AddReportFlags(CLI::App& app, BwFlags* f) {
  FlagGroup(app, "Report")
      .Flag("--explain", f->explain, "print the plan")
      .Flag("--all-targets", f->all_targets, "codec: every SIMD target that this CPU has")
      .Flag("--report_gbits", f->report_gbits, "bandwidth in Gbit/s instead of GB/s")
      .Option("--json", f->json, "the report as JSON to a file, - for standard output");
}

}  // namespace

void AddBwCommand(CLI::App& app, CommandResult* chosen) {
  CLI::App* bw = app.add_subcommand(
      "bw", "measure a collective: uncompressed and compressed, side by side, verified");
  auto flags = std::make_shared<BwFlags>();
  bw->add_option("collective", flags->collective,
                 "all_gather, reduce_scatter, all_reduce, all_to_all, broadcast or codec")
      ->required();
  AddSizeFlags(*bw, flags.get());
  AddRankFlags(*bw, flags.get());
  AddEncodingFlags(*bw, flags.get());
  AddRunFlags(*bw, flags.get());
  AddReportFlags(*bw, flags.get());
  bw->callback([flags, chosen] { chosen->run = [flags] { return RunBw(*flags); }; });
}

}  // namespace zpp::cli
