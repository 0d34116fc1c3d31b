#include "cli/train_table.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>

#include "cli/train_config.h"

namespace zpp::cli {
namespace {

constexpr int64_t kLines = 20;  // of a whole training, about
constexpr int kBarCells = 24;

__attribute__((format(printf, 1, 2))) std::string Printf(const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return text;
}

std::string Bytes(double bytes) {
  if (bytes >= 1e9) return Printf("%.2f GB", bytes / 1e9);
  if (bytes >= 1e6) return Printf("%.2f MB", bytes / 1e6);
  return Printf("%.1f KB", bytes / 1e3);
}

std::string Counted(int64_t count, const char* what) {
  return Printf("%lld %s%s", static_cast<long long>(count), what, count == 1 ? "" : "s");
}

std::string BatchText(const ZeroConfig& config) {
  return Printf("%lld contexts (%lld x %d per rank)",
                static_cast<long long>(config.train_batch_size),
                static_cast<long long>(config.micro_batch_size), config.accumulation_steps);
}

std::string Indented(const std::string& text) {
  std::string out = "#   ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "#   ";
  }
  while (!out.empty() && (out.back() == ' ' || out.back() == '#' || out.back() == '\n')) {
    out.pop_back();
  }
  return out + "\n";
}

std::string SummaryLine(const char* name, const TrainSummary& s) {
  return Printf("  %-12s %10.4f %9.4f %9.1f ms %11.0f %11s %11s %12s\n", name, s.train_loss,
                s.val_loss, s.time_ms, s.tokens_per_s, Bytes(s.wire_intra).c_str(),
                Bytes(s.wire_inter).c_str(), Bytes(static_cast<double>(s.peak_rss_bytes)).c_str());
}

constexpr const char* kSummaryHead =
    "               train loss  val loss    time/step    tokens/s wire inside wire across  "
    "peak memory\n";

}  // namespace

std::string TrainHead(const TrainArgs& args, const lm::Text& text, const Topology& topology) {
  const double train = static_cast<double>(text.train.size());
  const double held = static_cast<double>(text.held_out.size());
  std::string out =
      Printf("# %s model: %lld parameters; context %d, embedding %d, %s of %d, weights %s\n",
             args.model.c_str(), static_cast<long long>(args.shape.elems()), args.shape.context,
             args.shape.embed, Counted(args.shape.layers, "hidden layer").c_str(),
             args.shape.hidden, args.shape.in_out ? "(in, out)" : "(out, in)");
  out += Printf("# text %.300s: %s, %s to train on, %s held out\n", args.data.c_str(),
                Counted(text.files, "file").c_str(), Bytes(train).c_str(), Bytes(held).c_str());
  out += Printf("# %s on %s, %s, seed %llu, learning rate %g",
                Counted(topology.world(), "rank").c_str(),
                Counted(topology.num_nodes(), "node").c_str(), Counted(args.steps, "step").c_str(),
                static_cast<unsigned long long>(args.seed), args.rate.peak);
  out += Printf(" (%s of warm-up, then %s)", Counted(args.rate.warmup_steps, "step").c_str(),
                args.rate.cosine ? "a cosine to a twentieth" : "constant");
  if (args.inter_gbits > 0) out += Printf(", %g Gbit/s between nodes", args.inter_gbits);
  return out + "\n";
}

std::string RunHead(const char* name, const ZeroConfig& config, const TrainRun& run) {
  std::string out =
      Printf("#\n# %s: ZeRO stage %d, %s, %s, batch %s\n", name, config.stage,
             std::string(OptimizerName(config.optimizer)).c_str(),
             std::string(DTypeName(config.compute)).c_str(), BatchText(config).c_str());
  out += "# compressed: " + run.compression + "\n";
  out += "# memory of a rank, estimated:\n" + Indented(run.estimate.ToText());
  for (const std::string& note : run.notes) out += "# note: " + note + "\n";
  return out + "#     step      loss  grad norm  rel error   time/step  wire inside  wire across\n";
}

std::string StepLine(const TrainStep& step) {
  return Printf("  %8lld %9.4f %10.4f %10.4f %8.1f ms %12s %12s%s%s\n",
                static_cast<long long>(step.step), step.loss, step.grad_norm, step.rel_error,
                step.time_ms, Bytes(static_cast<double>(step.wire.intra)).c_str(),
                Bytes(static_cast<double>(step.wire.inter)).c_str(), step.exact ? "  exact" : "",
                step.skipped ? "  overflow, skipped" : "");
}

std::string TrainTail(const TrainReport& report) {
  std::string out;
  const auto add = [&](const char* name, const TrainRun& run) {
    if (run.summary) out += SummaryLine(name, *run.summary);
  };
  if (report.baseline) add("baseline", *report.baseline);
  add(report.baseline ? "compressed" : "training", report.run);
  if (!out.empty()) out = kSummaryHead + out;
  if (const auto compared = Compare(report)) {
    out +=
        Printf("# compressed: %.2fx as fast, %.3f of the bytes across, validation loss %+.2f %%\n",
               compared->speedup, compared->wire_ratio, compared->val_loss_percent);
  }
  if (!report.run.saved.empty()) out += "# saved in " + report.run.saved + "\n";
  return out;
}

TrainProgress::TrainProgress(FILE* out, int64_t steps)
    : out_(out), steps_(steps), terminal_(isatty(fileno(out)) != 0) {}

void TrainProgress::DrawBar(const TrainRun& run) {
  const TrainStep& last = run.steps.back();
  double left_s = 0;
  for (const TrainStep& step : run.steps) left_s += step.time_ms * 1e-3;
  left_s *= static_cast<double>(steps_ - last.step) / static_cast<double>(run.steps.size());
  const auto cells = static_cast<int>(kBarCells * last.step / steps_);
  const std::string bar = std::string(static_cast<size_t>(cells), '#') +
                          std::string(static_cast<size_t>(kBarCells - cells), '.');
  std::fprintf(out_, "\r[%s] %lld/%lld  loss %.4f  %.1f ms/step  %s across  %.0f s left \x1b[K",
               bar.c_str(), static_cast<long long>(last.step), static_cast<long long>(steps_),
               last.loss, last.time_ms, Bytes(static_cast<double>(last.wire.inter)).c_str(),
               left_s);
  open_ = true;
}

void TrainProgress::Show(const TrainRun& run) {
  const int64_t every = std::max<int64_t>(1, steps_ / kLines);
  for (; shown_ < run.steps.size(); ++shown_) {
    const TrainStep& step = run.steps[shown_];
    const bool line = step.step == 1 || step.step % every == 0 || step.step == steps_;
    if (!terminal_ && (line || step.skipped)) std::fputs(StepLine(step).c_str(), out_);
  }
  if (terminal_ && !run.steps.empty()) DrawBar(run);
  std::fflush(out_);
}

void TrainProgress::Close() {
  if (open_) std::fputc('\n', out_);
  open_ = false;
  shown_ = 0;
}

}  // namespace zpp::cli
