#include "cli/train_session.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/train_config.h"
#include "collectives/gather_values.h"
#include "common/strict_json.h"

namespace zpp::cli {
namespace {

constexpr int64_t kMostUntold = 10;  // steps between two exchanges of figures

// Highest resident size of this process since ForgetPeak(), 0 where Linux does not tell.
int64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::atoll(line.c_str() + 6) * 1024;
  }
  return 0;
}

void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

// What a checkpoint remembers of the training, besides the engine's state.
std::string UserText(const TrainArgs& args, const lm::Text& text, int64_t step) {
  return nlohmann::json{{"program", "zpp train"},
                        {"seed", args.seed},
                        {"next_step", step},
                        {"steps", args.steps},
                        {"text", text.Fingerprint()}}
      .dump();
}

int64_t TellEvery(int64_t steps) { return std::clamp<int64_t>(steps / 60, 1, kMostUntold); }

}  // namespace

StepBytes TrainSession::BytesOf(const std::vector<int64_t>& sent_bytes) const {
  StepBytes bytes;
  for (size_t tier = 0; tier < sent_bytes.size(); ++tier) {
    (tier == 0 ? bytes.intra : bytes.inter) += sent_bytes[tier];
  }
  return bytes;
}

Status TrainSession::LoadStart() {
  const std::vector<ParamSpec> params = lm::ParametersOf(p_.args.shape);
  std::vector<std::vector<float>> values;
  std::vector<ConstVec> views;
  for (size_t i = 0; i < params.size(); ++i) {
    values.emplace_back(static_cast<size_t>(lm::ElemsOf(params[i])));
    lm::InitialWeights(p_.args.shape, p_.args.seed, static_cast<int>(i), values.back());
    views.push_back({DType::kF32, values.back().data(), lm::ElemsOf(params[i])});
  }
  return engine_->LoadWeights(views);
}

Status TrainSession::Resume() {
  ZPP_ASSIGN_OR_RETURN(const std::string user, engine_->Load(p_.args.resume));
  const Result<nlohmann::json> told = ParseStrictJson(user);
  if (!told.ok() || !told->is_object() || told->value("program", "") != "zpp train") {
    return InvalidArgument(p_.args.resume + " was not saved by zpp train");
  }
  if (told->value("seed", p_.args.seed) != p_.args.seed) {
    return InvalidArgument(p_.args.resume + " was trained with --seed " + (*told)["seed"].dump() +
                           ", not " + std::to_string(p_.args.seed));
  }
  if (engine_->steps() >= p_.args.steps) {
    return InvalidArgument(p_.args.resume + " has done " + std::to_string(engine_->steps()) +
                           " steps already: --steps must be more than that");
  }
  run_->first_step = engine_->steps();
  if (told->value("text", uint64_t{0}) != p_.text.Fingerprint()) {
    run_->notes.push_back("the text is not the one that " + p_.args.resume + " was trained on");
  }
  if (told->value("steps", p_.args.steps) != p_.args.steps) {
    run_->notes.push_back("--steps was " + (*told)["steps"].dump() +
                          " before: the learning rate follows the new one from here on");
  }
  return {};
}

Status TrainSession::Start() {
  run_->config = ToJson(p_.config);
  run_->compression = CompressionText(p_.config);
  run_->notes = p_.config.notes;
  run_->estimate = EstimateFor(p_.config, p_.args.shape, p_.comm.topology());
  p_.events.starts(*run_);
  ForgetPeak();
  ZPP_ASSIGN_OR_RETURN(engine_,
                       ZeroEngine::Create(p_.comm, p_.config, lm::ParametersOf(p_.args.shape),
                                          {.seed = p_.args.seed, .audit = p_.args.audit}));
  store_.emplace(*engine_);
  return p_.args.resume.empty() ? LoadStart() : Resume();
}

// The sum of the losses of this rank's rows.
Result<double> TrainSession::MicroBatches(int64_t step) {
  double loss = 0;
  for (int micro = 0; micro < p_.config.accumulation_steps; ++micro) {
    const int64_t place = int64_t{p_.comm.rank()} * p_.config.accumulation_steps + micro;
    const lm::Batch batch = lm::TrainingBatch(p_.text, p_.args.shape.context,
                                              {.seed = p_.args.seed,
                                               .step = step,
                                               .first_row = place * p_.config.micro_batch_size,
                                               .rows = p_.config.micro_batch_size});
    ZPP_ASSIGN_OR_RETURN(const double sum, p_.network.Train(batch, engine_->loss_scale(), *store_));
    loss += sum;
    ZPP_RETURN_IF_ERROR(engine_->EndMicroBatch());
  }
  return loss;
}

Status TrainSession::TakeStep() {
  const Clock::time_point start = Clock::now();
  const int64_t step = engine_->steps();
  const double rate = p_.args.rate.At(step);
  engine_->set_learning_rate(rate);
  Local local;
  ZPP_ASSIGN_OR_RETURN(local.loss_sum, MicroBatches(step));
  ZPP_ASSIGN_OR_RETURN(const StepReport report, engine_->Step());
  local.time_s = std::chrono::duration<double>(Clock::now() - start).count();
  local.wire = BytesOf(report.sent_bytes);
  untold_.push_back(local);
  run_->steps.push_back({.step = report.step,
                         .learning_rate = rate,
                         .grad_norm = report.grad_norm,
                         .clip_coefficient = report.clip_coefficient,
                         .loss_scale = report.loss_scale,
                         .wire = {},
                         .rel_error = report.gradient_rel_error,
                         .weight_rel_error = report.weight_rel_error,
                         .skipped = report.skipped,
                         .exact = report.exact && Compresses(p_.config)});
  return {};
}

// Completes the figures of the last steps with those of the other ranks.
Status TrainSession::TellSteps() {
  if (untold_.empty()) return {};
  ZPP_ASSIGN_OR_RETURN(const std::vector<Local> all, GatherValues(p_.comm, untold_));
  const size_t count = untold_.size();
  for (size_t i = 0; i < count; ++i) {
    TrainStep& step = run_->steps[run_->steps.size() - count + i];
    double slowest_s = 0;
    for (size_t rank = 0; rank < all.size() / count; ++rank) {
      const Local& local = all[rank * count + i];
      step.loss += local.loss_sum;
      step.wire.intra += local.wire.intra;
      step.wire.inter += local.wire.inter;
      slowest_s = std::max(slowest_s, local.time_s);
    }
    step.loss /= static_cast<double>(p_.config.train_batch_size);
    step.time_ms = slowest_s * 1e3;
  }
  untold_.clear();
  p_.events.advanced(*run_);
  return {};
}

// Each rank takes its share of the fixed rows, with the master weights.
Status TrainSession::Validate() {
  ZPP_ASSIGN_OR_RETURN(MasterWeights weights, MasterWeights::Read(*engine_));
  const int64_t rows = lm::ValidationRows(p_.text, p_.args.shape.context);
  const int64_t world = p_.comm.world(), rank = p_.comm.rank();
  const int64_t first = rows * rank / world, end = rows * (rank + 1) / world;
  const lm::Batch batch = lm::ValidationBatch(p_.text, p_.args.shape.context, first, end - first);
  std::vector<double> sum(1);
  ZPP_ASSIGN_OR_RETURN(sum[0], p_.network.SumLoss(batch, weights));
  ZPP_ASSIGN_OR_RETURN(const std::vector<double> sums, GatherValues(p_.comm, sum));
  double total = 0;
  for (const double one : sums) total += one;
  run_->validations.push_back({engine_->steps(), total / static_cast<double>(rows)});
  return {};
}

// A disk that is full is for the user to see to, like any other argument that does not work.
Status TrainSession::Save() {
  const Status saved = engine_->Save(p_.args.save, UserText(p_.args, p_.text, engine_->steps()));
  if (saved.code() == StatusCode::kResourceExhausted) {
    return InvalidArgument("--save " + p_.args.save + ": " + saved.message() +
                           "; earlier checkpoints are whole");
  }
  ZPP_RETURN_IF_ERROR(saved);
  run_->saved = p_.args.save;
  return {};
}

Status TrainSession::BetweenSteps() {
  const int64_t step = engine_->steps();
  const bool last = step >= p_.args.steps;
  const auto due = [&](int64_t every) { return every > 0 && step % every == 0; };
  if (last || due(TellEvery(p_.args.steps))) ZPP_RETURN_IF_ERROR(TellSteps());
  if (!p_.args.save.empty() && (last || due(p_.args.save_every))) ZPP_RETURN_IF_ERROR(Save());
  if (last || due(p_.args.eval_every)) ZPP_RETURN_IF_ERROR(Validate());
  return {};
}

Status TrainSession::Finish() {
  run_->held = engine_->memory();
  ZPP_ASSIGN_OR_RETURN(const std::vector<int64_t> peaks,
                       GatherValues(p_.comm, std::vector<int64_t>{PeakResidentBytes()}));
  if (!p_.args.export_path.empty()) {
    ZPP_RETURN_IF_ERROR(engine_->SaveWeights(p_.args.export_path));
  }
  TrainSummary summary = Summarize(run_->steps, p_.config.train_batch_size);
  summary.val_loss = run_->validations.back().loss;
  summary.peak_rss_bytes = *std::max_element(peaks.begin(), peaks.end());
  run_->summary = summary;
  return {};
}

Status TrainSession::Train(TrainRun* run) {
  run_ = run;
  ZPP_RETURN_IF_ERROR(Start());
  Status status;
  while (status.ok() && engine_->steps() < p_.args.steps) {
    status = TakeStep();
    if (status.ok()) status = BetweenSteps();
  }
  run_->audit = engine_->audit().ToJson();
  // What the others know of these steps will never arrive.
  run_->steps.resize(run_->steps.size() - untold_.size());
  if (status.ok()) status = Finish();
  return status;
}

}  // namespace zpp::cli
