#include "cli/train_args.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "cli/json_file.h"
#include "cli/lm/text.h"
#include "cli/parse.h"
#include "cli/train_config.h"
#include "collectives/communicator.h"
#include "common/hash.h"

namespace zpp::cli {
namespace {

constexpr int64_t kDefaultWarmup = 50;
constexpr double kLastRate = 0.05;  // of the peak

Status CheckCount(const char* flag, int64_t value, int64_t low) {
  constexpr int64_t kMost = int64_t{1} << 40;
  if (value >= low && value <= kMost) return {};
  return InvalidArgument(std::string(flag) + " must be a number from " + std::to_string(low) +
                         ", not " + std::to_string(value));
}

Status ResolveRanks(const TrainFlags& flags, const LaunchEnv* launched, TrainArgs* args) {
  ZPP_ASSIGN_OR_RETURN(static_cast<RankCounts&>(*args), ResolveRankFlags(flags, launched));
  args->timeout_s = flags.timeout_s.value_or(args->timeout_s);
  args->threads = flags.threads.value_or(args->threads);
  ZPP_RETURN_IF_ERROR(CheckRange("--timeout", args->timeout_s, 0.1, 86400));
  ZPP_RETURN_IF_ERROR(CheckRange("--threads", args->threads, 1, kMaxCodecThreads));
  if (flags.inter_gbits) {
    ZPP_RETURN_IF_ERROR(CheckRange("--inter-gbits", *flags.inter_gbits, 1e-3, 1e5));
  }
  args->inter_gbits = flags.inter_gbits.value_or(0);
  return {};
}

Status ResolveModel(const TrainFlags& flags, TrainArgs* args) {
  ZPP_ASSIGN_OR_RETURN(args->shape, lm::NamedShape(flags.model));
  const lm::LmShape named = args->shape;
  args->shape.context = flags.context.value_or(named.context);
  args->shape.embed = flags.embed.value_or(named.embed);
  args->shape.hidden = flags.hidden.value_or(named.hidden);
  args->shape.layers = flags.layers.value_or(named.layers);
  args->model = args->shape == named ? flags.model : "own";
  if (flags.layout != "out_in" && flags.layout != "in_out") {
    return InvalidArgument("--layout takes out_in or in_out, not '" + flags.layout + "'");
  }
  args->shape.in_out = flags.layout == "in_out";
  return lm::CheckShape(args->shape);
}

// What only makes sense without a file that says it.
Status CheckNotInConfig(const TrainFlags& flags) {
  const char* given = flags.stage             ? "--stage"
                      : flags.accumulation    ? "--accumulation"
                      : flags.batch           ? "--batch"
                      : flags.compute.empty() ? nullptr
                                              : "--compute";
  if (given == nullptr || flags.config.empty()) return {};
  return InvalidArgument(std::string(given) + " and --config cannot both be given: say it in " +
                         flags.config);
}

Result<ZeroConfig> DefaultConfig(const TrainFlags& flags, const TrainArgs& args) {
  DefaultChoices choices;
  choices.learning_rate = DefaultLearningRate(args.shape);
  choices.stage = flags.stage.value_or(choices.stage);
  ZPP_RETURN_IF_ERROR(CheckRange("--stage", choices.stage, 0, 3));
  choices.accumulation = flags.accumulation.value_or(1);
  ZPP_RETURN_IF_ERROR(CheckRange("--accumulation", choices.accumulation, 1, 1 << 16));
  if (flags.batch) ZPP_RETURN_IF_ERROR(CheckCount("--batch", *flags.batch, 1));
  choices.batch = flags.batch.value_or(0);
  const int64_t unit = int64_t{args.world} * choices.accumulation;
  if (choices.batch % unit != 0) {
    return InvalidArgument("--batch " + std::to_string(choices.batch) +
                           " cannot be divided among " + std::to_string(args.world) +
                           " ranks times " + std::to_string(choices.accumulation) +
                           " micro-batches");
  }
  if (!flags.compute.empty()) choices.compute = flags.compute;
  if (choices.compute != "fp32" && choices.compute != "fp16" && choices.compute != "bf16") {
    return InvalidArgument("--compute takes fp32, fp16 or bf16, not '" + choices.compute + "'");
  }
  return ParseZeroConfig(DefaultConfigText(choices, args.world), args.world);
}

Status ResolveConfig(const TrainFlags& flags, TrainArgs* args) {
  ZPP_RETURN_IF_ERROR(CheckNotInConfig(flags));
  ZPP_ASSIGN_OR_RETURN(args->config, flags.config.empty()
                                         ? DefaultConfig(flags, *args)
                                         : ReadZeroConfig(flags.config, args->world));
  if (!flags.baseline.empty() && !flags.compare) {
    return InvalidArgument("--baseline names what --compare compares with: give --compare too");
  }
  if (!flags.compare) return {};
  if (!flags.resume.empty() || !flags.save.empty() || !flags.export_path.empty()) {
    return InvalidArgument(
        "--compare trains twice: --save, --resume and --export belong to one "
        "training");
  }
  if (!flags.baseline.empty()) {
    ZPP_ASSIGN_OR_RETURN(args->baseline, ReadZeroConfig(flags.baseline, args->world));
    return {};
  }
  if (!Compresses(args->config)) {
    return InvalidArgument(
        "--compare finds nothing to compare: " +
        (flags.config.empty() ? std::string("the configuration") : flags.config) +
        " compresses nothing (\"zero_pp\": {\"enabled\": true} does)");
  }
  args->baseline = Uncompressed(args->config);
  return {};
}

Status ResolveRate(const TrainFlags& flags, TrainArgs* args) {
  ZPP_RETURN_IF_ERROR(CheckCount("--steps", flags.steps, 1));
  if (flags.schedule != "cosine" && flags.schedule != "constant") {
    return InvalidArgument("--schedule takes cosine or constant, not '" + flags.schedule + "'");
  }
  if (flags.learning_rate) {
    ZPP_RETURN_IF_ERROR(CheckRange("--learning-rate", *flags.learning_rate, 0, 1e3));
  }
  if (flags.warmup) ZPP_RETURN_IF_ERROR(CheckCount("--warmup", *flags.warmup, 0));
  args->steps = flags.steps;
  args->seed = flags.seed;
  args->rate = {
      .peak = flags.learning_rate.value_or(PeakLearningRate(args->config)),
      .warmup_steps = flags.warmup.value_or(std::min(kDefaultWarmup, (flags.steps + 11) / 12)),
      .steps = flags.steps,
      .cosine = flags.schedule == "cosine"};
  return {};
}

Status ResolveOutput(const TrainFlags& flags, TrainArgs* args) {
  ZPP_RETURN_IF_ERROR(CheckCount("--save-every", flags.save_every, 0));
  ZPP_RETURN_IF_ERROR(CheckCount("--eval-every", flags.eval_every, 0));
  ZPP_RETURN_IF_ERROR(CheckCount("--audit", flags.audit_every, 0));
  if (flags.save_every > 0 && flags.save.empty()) {
    return InvalidArgument("--save-every needs --save, which says where");
  }
  if (flags.audit_update && flags.audit_every != 1) {
    return InvalidArgument("--audit-update follows every step: give --audit 1 too");
  }
  args->resume = flags.resume;
  args->save = flags.save;
  args->export_path = flags.export_path;
  args->save_every = flags.save_every;
  args->eval_every = flags.eval_every;
  args->audit = {.every = flags.audit_every, .update_error = flags.audit_update};
  args->json = flags.json;
  return {};
}

}  // namespace

double LearningRate::At(int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  if (!cosine) return peak;
  const auto span = static_cast<double>(std::max<int64_t>(1, steps - warmup_steps));
  const double done = std::min(1.0, static_cast<double>(step - warmup_steps) / span);
  const double height = 0.5 * (1 + std::cos(std::numbers::pi * done));
  return peak * (kLastRate + (1 - kLastRate) * height);
}

Result<TrainArgs> ResolveTrain(const TrainFlags& flags, const LaunchEnv* launched) {
  TrainArgs args;
  ZPP_RETURN_IF_ERROR(ResolveRanks(flags, launched, &args));
  ZPP_RETURN_IF_ERROR(ResolveModel(flags, &args));
  ZPP_RETURN_IF_ERROR(ResolveConfig(flags, &args));
  ZPP_RETURN_IF_ERROR(ResolveRate(flags, &args));
  ZPP_RETURN_IF_ERROR(ResolveOutput(flags, &args));
  args.data = flags.data;
  if (args.data.empty()) {
    ZPP_ASSIGN_OR_RETURN(args.data, lm::DefaultTextFolder());
  }
  return args;
}

uint64_t DigestOf(const TrainArgs& args) {
  nlohmann::json all = {
      {"config", ToJson(args.config)},
      {"baseline", args.baseline ? ToJson(*args.baseline) : nlohmann::json(nullptr)},
      {"shape",
       {args.shape.context, args.shape.embed, args.shape.hidden, args.shape.layers,
        args.shape.in_out}},
      {"run", {args.steps, args.seed, args.save_every, args.eval_every, args.audit.every}},
      {"rate", {args.rate.peak, args.rate.warmup_steps, args.rate.cosine}},
      {"paths", {args.resume.empty(), args.save.empty(), args.export_path.empty()}},
      {"audit_update", args.audit.update_error}};
  Hash hash;
  hash.Add(all.dump());
  return hash.value();
}

}  // namespace zpp::cli
