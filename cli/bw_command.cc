#include "cli/bw_command.h"

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bw_args.h"
#include "cli/bw_json.h"
#include "cli/bw_rank.h"
#include "cli/codec_command.h"
#include "cli/json_file.h"
#include "cli/launcher.h"
#include "collectives/bootstrap/launch_env.h"

namespace zpp::cli {
namespace {

// This process's arguments, without its name.
std::vector<std::string> OwnArguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> args;
  for (std::string arg; std::getline(file, arg, '\0');) args.push_back(arg);
  if (!args.empty()) args.erase(args.begin());
  return args;
}

int LaunchRanks(const BwArgs& args, const BwFlags& flags) {
  LaunchSpec spec;
  spec.ranks = args.ranks;
  spec.args = WithoutRanksFlag(OwnArguments());
  if (!flags.nodes) spec.args.push_back("--nodes=" + std::to_string(args.nodes));
  return Launch(spec);
}

int ReportBadInput(const Status& status, const BwFlags& flags) {
  // A reader of standard output is promised JSON, whatever happens.
  if (flags.json == "-") {
    static_cast<void>(WriteJson("-", ErrorJson(flags.collective, status.message())));
  }
  return Report(status);
}

// Each of the launcher's ranks would start a job of its own, and all would print.
Status RanksOfItsOwn(const LaunchEnv& launched) {
  return InvalidArgument("--ranks starts ranks of its own, but this is already rank " +
                         std::to_string(launched.rank) + " of " + std::to_string(launched.world) +
                         " (" + launched.launcher + "): leave --ranks out");
}

int RunBw(const BwFlags& flags) {
  if (flags.collective == "codec") return RunCodec(flags);
  const Result<LaunchEnv> launched = ReadLaunchEnv();
  const bool alone = launched.status().code() == StatusCode::kNotFound;
  const Result<BwArgs> args = ResolveBw(flags, !alone);
  if (!args.ok()) return ReportBadInput(args.status(), flags);
  if (args->ranks > 0) {
    if (launched.ok() && launched->world > 1)
      return ReportBadInput(RanksOfItsOwn(*launched), flags);
    return LaunchRanks(*args, flags);
  }
  if (!launched.ok()) return ReportBadInput(launched.status(), flags);
  return RunBwRank(*args, launched->rank);
}

void AddSizeFlags(CLI::App& app, BwFlags* f) {
  app.add_option("-b", f->min_size, "smallest vector in bytes, suffixes K M G (1M)")
      ->group("Sizes");
  app.add_option("-e", f->max_size, "largest vector (64M)")->group("Sizes");
  app.add_option("-f", f->factor, "from one size to the next (4)")->group("Sizes");
  app.add_option("-s", f->one_size, "one size only")->group("Sizes");
  app.add_flag("-a", f->all_sizes, "all sizes: 8 to 64M by factors of 2")->group("Sizes");
  app.add_option("-d", f->dtype, "fp32, fp16 or bf16 (fp32)")->group("Sizes");
  app.add_option("--data", f->data, "values from a file: raw, or .safetensors")->group("Sizes");
}

void AddRankFlags(CLI::App& app, BwFlags* f) {
  app.add_option("--ranks", f->ranks,
                 "start N ranks on this host (4); not given under torchrun, mpirun or srun: theirs")
      ->group("Ranks");
  app.add_option("--nodes", f->nodes, "declare M nodes (2 with --ranks)")->group("Ranks");
  app.add_option("--inter-gbits", f->inter_gbits, "throttle what crosses nodes, Gbit/s and node")
      ->group("Ranks");
  app.add_option("--link-gbits", f->link_gbits,
                 "what the link between nodes can do, for the prediction")
      ->group("Ranks");
  app.add_option("--timeout", f->timeout_s, "seconds for connecting and for a collective (60)")
      ->group("Ranks");
}

void AddEncodingFlags(CLI::App& app, BwFlags* f) {
  app.add_option("--intra", f->intra, "encoding inside a node: none, int8, int4 (int8)")
      ->group("Compression");
  app.add_option("--inter", f->inter,
                 "encoding across nodes (int4 for reductions, int8 for all_gather)")
      ->group("Compression");
  app.add_option("--block", f->block,
                 "elements that share a scale, 32 to 2048 (int8 256, int4 128)")
      ->group("Compression");
  app.add_option("--code", f->code, "int4's levels: linear or sqrt (sqrt for reductions)")
      ->group("Compression");
  app.add_option("--rounding", f->rounding, "nearest or stochastic (nearest)")
      ->group("Compression");
  app.add_flag("--flat", f->flat, "one hop over all ranks, whatever the nodes")
      ->group("Compression");
}

void AddRunFlags(CLI::App& app, BwFlags* f) {
  app.add_option("-o", f->op, "sum or avg (sum)")->group("Running");
  app.add_option("-n", f->iters, "iterations (20)")->group("Running");
  app.add_option("-w", f->warmup, "iterations before, not timed (3)")->group("Running");
  app.add_option("-D", f->seconds, "seconds per size, instead of -n")->group("Running");
  app.add_option("--threads", f->threads, "codec threads per rank (1)")->group("Running");
  app.add_option("--chunk", f->chunk, "bytes of a part per chunk (chosen by size)")
      ->group("Running");
}

void AddReportFlags(CLI::App& app, BwFlags* f) {
  app.add_flag("--explain", f->explain, "print the plan")->group("Report");
  app.add_flag("--all-targets", f->all_targets, "codec: every SIMD target that this CPU has")
      ->group("Report");
  app.add_flag("--report_gbits", f->report_gbits, "bandwidth in Gbit/s instead of GB/s")
      ->group("Report");
  app.add_option("--json", f->json, "the report as JSON to a file, - for standard output")
      ->group("Report");
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
