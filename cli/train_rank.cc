#include "cli/train_rank.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli/bw_agree.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/json_file.h"
#include "cli/train_json.h"
#include "cli/train_table.h"
#include "common/file.h"
#include "zero/checkpoint.h"

namespace zpp::cli {
namespace {

FILE* TableFile(const TrainArgs& args) { return args.json == "-" ? stderr : stdout; }

// Rank 0's last words.
int Conclude(const TrainArgs& args, const Status& status, TrainReport* report) {
  if (!status.ok()) report->error = status.message();
  std::fputs(TrainTail(*report).c_str(), TableFile(args));
  std::fflush(TableFile(args));
  const int code = Report(status);
  if (args.json.empty()) return code;
  return std::max(code, Report(WriteJson(args.json, ToJson(*report))));
}

// A signal before there is a communicator: nothing to abort, and connecting may block for long.
void ExitOnSignal(const TrainArgs& args, bool writes, int signal) {
  if (writes && !args.json.empty()) {
    static_cast<void>(Report(WriteJson(args.json, TrainErrorJson("interrupted by a signal"))));
  }
  _exit(128 + signal);
}

// Prints what happens, on rank 0.
class Printer {
 public:
  Printer(const TrainArgs& args, TrainReport* report)
      : args_(args), report_(report), progress_(TableFile(args), args.steps) {}

  void Head(const lm::Text& text, const Topology& topology) {
    std::fputs(TrainHead(args_, text, topology).c_str(), TableFile(args_));
  }
  TrainEvents Events() {
    return {.starts = [this](const TrainRun& run) { Starts(run); },
            .advanced = [this](const TrainRun& run) { progress_.Show(run); }};
  }
  void Close() { progress_.Close(); }

 private:
  void Starts(const TrainRun& run) {
    progress_.Close();
    const bool is_baseline = report_->baseline && &run == &*report_->baseline;
    const char* name = is_baseline ? "baseline" : report_->baseline ? "compressed" : "training";
    const ZeroConfig& config = is_baseline ? *args_.baseline : args_.config;
    std::fputs(RunHead(name, config, run).c_str(), TableFile(args_));
    std::fflush(TableFile(args_));
  }

  const TrainArgs& args_;
  TrainReport* report_;
  TrainProgress progress_;
};

// Before an hour of training: whether rank 0 can write what it was asked to.
Status CheckOutputs(const TrainArgs& args) {
  if (!args.json.empty()) ZPP_RETURN_IF_ERROR(CheckJsonPath(args.json));
  if (!args.export_path.empty()) ZPP_RETURN_IF_ERROR(CheckWritable(args.export_path));
  if (args.save.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(args.save, error);
  if (error) {
    return {StatusCode::kNotFound, "cannot make --save " + args.save + ": " + error.message()};
  }
  return CheckWritable(args.save + "/latest");
}

Status TrainOne(const TrainSession::Parts& parts, TrainRun* run) {
  return TrainSession(parts).Train(run);
}

// Ranks that cannot all go on leave together, and rank 0 alone says why.
int LeaveTogether(Communicator& comm, const TrainArgs& args, const Status& why,
                  TrainReport* report) {
  static_cast<void>(comm.Shutdown(Deadline::In(comm.options().timeout_s)));
  if (comm.rank() != 0) return ExitCodeFor(why);
  return Conclude(args, why, report);
}

}  // namespace

ConnectOptions OptionsFor(const TrainArgs& args) {
  ConnectOptions options;
  options.communicator.timeout_s = args.timeout_s;
  options.communicator.codec_threads = args.threads;
  options.startup_timeout_s = args.timeout_s;
  options.nodes = args.nodes;
  options.inter_bytes_per_s = args.inter_gbits * 1e9 / 8;
  return options;
}

int ReportBadTraining(const std::string& json, const Status& why) {
  // A reader of standard output is promised JSON, whatever happens.
  if (json == "-") static_cast<void>(WriteJson("-", TrainErrorJson(why.message())));
  return Report(why);
}

Result<lm::Text> PrepareText(const TrainArgs& args, bool writes) {
  if (writes) ZPP_RETURN_IF_ERROR(CheckOutputs(args));
  if (!args.resume.empty()) ZPP_RETURN_IF_ERROR(CheckpointReader::Open(args.resume).status());
  ZPP_ASSIGN_OR_RETURN(lm::Text text, lm::ReadText(args.data));
  ZPP_RETURN_IF_ERROR(lm::CheckLongEnough(text, args.shape.context));
  return text;
}

Status TrainAll(const TrainArgs& args, const lm::Text& text, Communicator& comm,
                const TrainEvents& events, TrainReport* report) {
  report->ranks = comm.world();
  report->nodes = comm.topology().num_nodes();
  const int64_t rows =
      std::max(args.config.micro_batch_size, args.baseline ? args.baseline->micro_batch_size : 0);
  auto network = lm::Network<float>::Create(args.shape, rows, lm::FastKernels());
  ZPP_RETURN_IF_ERROR(AgreeToGoOn(comm, {network.status(), DigestOf(args), text.Fingerprint()}));
  const auto parts = [&](const ZeroConfig& config) {
    return TrainSession::Parts{args, config, text, *network, comm, events};
  };
  if (args.baseline) {
    report->baseline.emplace();
    ZPP_RETURN_IF_ERROR(TrainOne(parts(*args.baseline), &*report->baseline));
  }
  return TrainOne(parts(args.config), &report->run);
}

int RunTrainRank(const TrainArgs& args, int rank) {
  // A file that may not grow is an error of the call that writes it, like a full disk.
  signal(SIGXFSZ, SIG_IGN);
  const bool writes = rank == 0;
  InterruptWatch interrupts;
  interrupts.OnSignal([&](int signal) { ExitOnSignal(args, writes, signal); });
  TrainReport report{.model = args.model,
                     .parameters = args.shape.elems(),
                     .data = args.data,
                     .baseline = {},
                     .run = {},
                     .error = {}};
  // Whether reading went well is said after connecting, or the others would wait for this rank
  // until their time is up.
  Result<lm::Text> text = PrepareText(args, writes);
  auto connected = ConnectFromEnv(OptionsFor(args));
  if (!connected.ok()) {
    return writes ? Conclude(args, connected.status(), &report) : Report(connected.status());
  }
  Communicator& comm = **connected;
  interrupts.OnSignal([&comm](int) {
    comm.Abort({StatusCode::kAborted, "interrupted by a signal"});
  });
  Status status = AgreeToGoOn(comm, {text.status(), DigestOf(args), 0});
  Printer printer(args, &report);
  if (status.ok()) {
    if (writes) printer.Head(*text, comm.topology());
    const TrainEvents silent = {.starts = [](const TrainRun&) {},
                                .advanced = [](const TrainRun&) {}};
    status = TrainAll(args, *text, comm, writes ? printer.Events() : silent, &report);
    printer.Close();
  }
  // A bad argument is bad on all ranks alike, and a difference is found out by all.
  const bool everywhere =
      ExitCodeFor(status) == kExitUsage || status.code() == StatusCode::kMismatch;
  if (!status.ok() && comm.status().ok() && everywhere) {
    return LeaveTogether(comm, args, status, &report);
  }
  interrupts.OnSignal({});
  if (status.ok()) status = comm.Shutdown(Deadline::In(comm.options().timeout_s));
  const int code = writes ? Conclude(args, status, &report) : Report(status);
  return interrupts.signal() != 0 ? 128 + interrupts.signal() : code;
}

}  // namespace zpp::cli
