#include "cli/train_command.h"

#include <memory>

#include "cli/launcher.h"
#include "cli/rank_flags.h"
#include "cli/train_args.h"
#include "cli/train_rank.h"

namespace zpp::cli {
namespace {

// All that can be wrong on this host is found here, once; only then ranks are started.
int LaunchRanks(const TrainArgs& args, const TrainFlags& flags) {
  Status status = PrepareText(args, true).status();
  if (status.ok()) status = CheckEnvironment(args.ranks, OptionsFor(args));
  if (!status.ok()) return ReportBadTraining(args.json, status);
  LaunchSpec spec;
  spec.ranks = args.ranks;
  spec.args = WithoutRanksFlag(OwnArguments());
  if (!flags.nodes && args.nodes > 0) spec.args.push_back("--nodes=" + std::to_string(args.nodes));
  return Launch(spec);
}

int RunTrain(const TrainFlags& flags) {
  const auto refuse = [&flags](const Status& why) { return ReportBadTraining(flags.json, why); };
  PreferFlags({{EnvVar::kTimeout, flags.timeout_s.has_value()},
               {EnvVar::kThreads, flags.threads.has_value()},
               {EnvVar::kLocalSize, flags.nodes.has_value()},
               {EnvVar::kTopologyFile, flags.nodes.has_value()}});
  const Result<std::optional<LaunchEnv>> launched = LaunchedBy(flags.ranks);
  if (!launched.ok()) return refuse(launched.status());
  const Result<TrainArgs> args = ResolveTrain(flags, *launched ? &**launched : nullptr);
  if (!args.ok()) return refuse(args.status());
  return args->ranks > 0 ? LaunchRanks(*args, flags) : RunTrainRank(*args, (*launched)->rank);
}

void AddModelFlags(CLI::App& app, TrainFlags* f) {
  FlagGroup(app, "Model and text")
      .Option("--data", f->data, "a file or folder of text (the C++ standard library's headers)")
      .Option("--model", f->model, "tiny (29 K parameters), small (665 K), 20m (21.5 M) (small)")
      .Option("--context", f->context, "bytes that the next one is predicted from")
      .Option("--embed", f->embed, "features per byte")
      .Option("--hidden", f->hidden, "width of the hidden layers")
      .Option("--layers", f->layers, "hidden layers")
      .Option("--layout", f->layout, "weights stored out_in or in_out (out_in)");
}

void AddRankFlags(CLI::App& app, TrainFlags* f) {
  FlagGroup(app, "Ranks")
      .Option("--ranks", f->ranks,
              "start N ranks on this host (4); not given under torchrun, mpirun or srun: theirs")
      .Option("--nodes", f->nodes, "declare M nodes (2 with --ranks)")
      .Option("--inter-gbits", f->inter_gbits, "throttle what crosses nodes, Gbit/s and node")
      .Option("--timeout", f->timeout_s, "seconds for connecting and for a collective (60)")
      .Option("--threads", f->threads, "codec threads per rank (1)");
}

void AddConfigFlags(CLI::App& app, TrainFlags* f) {
  FlagGroup(app, "Configuration")
      .Option("--config", f->config,
              "DeepSpeed's JSON, with zero_pp (AdamW, clipping 1, zero_pp on)")
      .Option("--stage", f->stage, "without --config: ZeRO stage 0 to 3 (3)")
      .Option("--batch", f->batch, "without --config: contexts a step, over all ranks (512)")
      .Option("--accumulation", f->accumulation, "without --config: micro-batches a step (1)")
      .Option("--compute", f->compute, "without --config: fp32, fp16 or bf16 (fp32)");
}

void AddRunFlags(CLI::App& app, TrainFlags* f) {
  FlagGroup(app, "Running")
      .Option("--steps", f->steps, "optimizer steps, those before --resume included (600)")
      .Option("--seed", f->seed, "of the first weights and the batches (1)")
      .Option("--learning-rate", f->learning_rate, "the peak, instead of the configuration's")
      .Option("--warmup", f->warmup, "steps up to the peak (50, or a twelfth of the steps)")
      .Option("--schedule", f->schedule, "after it: cosine (to a twentieth) or constant (cosine)")
      .Option("--save", f->save, "folder for checkpoints: one at the end")
      .Option("--save-every", f->save_every, "... and one every so many steps")
      .Option("--resume", f->resume, "go on from a folder of checkpoints")
      .Option("--export", f->export_path, "all weights as one .safetensors file, at the end");
}

void AddReportFlags(CLI::App& app, TrainFlags* f) {
  FlagGroup(app, "Report")
      .Flag("--compare", f->compare, "train twice, uncompressed and compressed, side by side")
      .Option("--baseline", f->baseline, "the uncompressed configuration, if it is another file")
      .Option("--eval-every", f->eval_every, "validate every so many steps (at the end)")
      .Option("--audit", f->audit_every,
              "compare with the uncompressed gradient every so many steps")
      .Flag("--audit-update", f->audit_update, "with --audit 1: the error of Adam's update too")
      .Option("--json", f->json, "the report as JSON to a file, - for standard output");
}

}  // namespace

void AddTrainCommand(CLI::App& app, CommandResult* chosen) {
  CLI::App* train = app.add_subcommand(
      "train", "train a byte-level language model with ZeRO, compressed, on real text");
  auto flags = std::make_shared<TrainFlags>();
  AddModelFlags(*train, flags.get());
  AddRankFlags(*train, flags.get());
  AddConfigFlags(*train, flags.get());
  AddRunFlags(*train, flags.get());
  AddReportFlags(*train, flags.get());
  train->callback([flags, chosen] { chosen->run = [flags] { return RunTrain(*flags); }; });
}

}  // namespace zpp::cli
