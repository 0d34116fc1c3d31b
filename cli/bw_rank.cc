#include "cli/bw_rank.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/bw_agree.h"
#include "cli/bw_json.h"
#include "cli/bw_session.h"
#include "cli/bw_table.h"
#include "cli/bw_verify.h"
#include "cli/command.h"
#include "cli/data_file.h"
#include "cli/interrupt.h"
#include "cli/json_file.h"
#include "common/log.h"

namespace zpp::cli {
namespace {

struct Loaded {
  std::vector<float> values;
  std::vector<std::string> notes;
};

// As many of the file's values as the largest vector takes.
Result<Loaded> LoadData(const BwArgs& args) {
  if (args.data.empty()) return Loaded{};
  ZPP_ASSIGN_OR_RETURN(const DataFile file, DataFile::Open(args.data, args.dtype));
  const int64_t wanted = std::max<int64_t>(1, args.sizes_bytes.back() / SizeOf(args.dtype));
  Loaded loaded;
  loaded.values.resize(static_cast<size_t>(std::min(wanted, file.elems())));
  ZPP_RETURN_IF_ERROR(file.Fill(0, DType::kF32, std::as_writable_bytes(std::span(loaded.values))));
  loaded.notes.push_back("data " + args.data);
  for (const std::string& note : file.Notes()) loaded.notes.push_back(note);
  return loaded;
}

// Whatever may fail on this host alone. `writes`: this rank is the one that will write the JSON.
Result<Loaded> Prepare(BwArgs* args, bool writes) {
  if (writes && !args->json.empty()) ZPP_RETURN_IF_ERROR(CheckJsonPath(args->json));
  ZPP_RETURN_IF_ERROR(ResolveHere(args));
  return LoadData(*args);
}

FILE* TableFile(const BwArgs& args) { return args.json == "-" ? stderr : stdout; }

void Print(const BwArgs& args, const std::string& text) {
  std::fputs(text.c_str(), TableFile(args));
  std::fflush(TableFile(args));
}

// Rank 0's last words. A bad Status that is printed here is not printed again.
int Conclude(const BwArgs& args, const Status& status, BwReport* report) {
  if (!status.ok()) report->error = status.message();
  if (!report->rows.empty()) Print(args, TableTail(args, *report));
  int code = Report(status);
  if (!args.json.empty())
    code = std::max(code, Report(WriteJson(args.json, ToJson(args, *report))));
  if (code == kExitOk && !report->good()) code = kExitFailed;
  return code;
}

// A signal before there is a communicator: nothing to abort, and connecting may block for long.
void ExitOnSignal(const BwArgs& args, bool writes, int signal) {
  if (writes && !args.json.empty()) {
    const std::string name(CollectiveName(args.kind));
    static_cast<void>(Report(WriteJson(args.json, ErrorJson(name, "interrupted by a signal"))));
  }
  _exit(128 + signal);
}

uint64_t DigestOf(const std::vector<float>& values) {
  return HashOf({DType::kF32, values.data(), static_cast<int64_t>(values.size())});
}

// Ranks that cannot all go on leave together, and rank 0 alone says why.
int LeaveTogether(Communicator& comm, const BwArgs& args, const Status& why, BwReport* report) {
  static_cast<void>(comm.Shutdown(Deadline::In(comm.options().timeout_s)));
  const int code = ExitCodeFor(why);
  if (comm.rank() != 0) return code;
  if (code != kExitUsage) return Conclude(args, why, report);
  return ReportBadInput(args.json, std::string(CollectiveName(args.kind)), why);
}

}  // namespace

ConnectOptions OptionsFor(const BwArgs& args) {
  ConnectOptions options;
  options.communicator.timeout_s = args.timeout_s;
  options.communicator.chunk_bytes = args.chunk_bytes;
  options.communicator.codec_threads = args.threads;
  options.startup_timeout_s = args.timeout_s;
  options.nodes = args.nodes;
  options.inter_bytes_per_s = args.inter_gbits * 1e9 / 8;
  return options;
}

int ReportBadInput(const std::string& json, const std::string& collective, const Status& why) {
  // A reader of standard output is promised JSON, whatever happens.
  if (json == "-") static_cast<void>(WriteJson("-", ErrorJson(collective, why.message())));
  return Report(why);
}

Status MeasureAll(const BwArgs& args, const Values& values, Communicator& comm, BwReport* report) {
  report->topology = comm.topology();
  report->transport = comm.transport().info().name;
  BwSession session(args, values, comm);
  ZPP_RETURN_IF_ERROR(session.Allocate());
  ZPP_ASSIGN_OR_RETURN(report->places, session.Places());
  const bool prints = comm.rank() == 0;
  if (prints) Print(args, TableHead(args, *report));
  for (const int64_t size_bytes : args.sizes_bytes) {
    ZPP_ASSIGN_OR_RETURN(BwRow row, session.Measure(size_bytes));
    if (prints) Print(args, TableRow(args, row));
    report->rows.push_back(std::move(row));
  }
  return {};
}

int RunBwRank(BwArgs args, int rank) {
  const bool writes = rank == 0;
  InterruptWatch interrupts;
  interrupts.OnSignal([&](int signal) { ExitOnSignal(args, writes, signal); });
  BwReport report;
  const auto conclude = [&](const Status& status) {
    return writes ? Conclude(args, status, &report) : Report(status);
  };

  // Before there are others: loading may take long. Whether it went well is said after connecting,
  // or they would wait for this rank until their time is up.
  Result<Loaded> prepared = Prepare(&args, writes);
  Loaded loaded = prepared.ok() ? *std::move(prepared) : Loaded{};
  report.notes = loaded.notes;
  auto connected = ConnectFromEnv(OptionsFor(args));
  if (!connected.ok()) return conclude(connected.status());
  Communicator& comm = **connected;
  interrupts.OnSignal([&comm](int) {
    comm.Abort({StatusCode::kAborted, "interrupted by a signal"});
  });
  Status status = AgreeToGoOn(comm, {prepared.status(), DigestOf(args), DigestOf(loaded.values)});
  if (!status.ok() && comm.status().ok()) {
    const int code = LeaveTogether(comm, args, status, &report);
    interrupts.OnSignal({});  // nobody may abort what is about to go
    return code;
  }
  const Values values(args.dtype, std::move(loaded.values), comm.world());
  if (status.ok()) status = MeasureAll(args, values, comm, &report);
  interrupts.OnSignal({});
  if (status.ok()) status = comm.Shutdown(Deadline::In(comm.options().timeout_s));
  const int code = conclude(status);
  if (interrupts.signal() != 0) return 128 + interrupts.signal();
  return code != kExitOk || !report.good() ? kExitFailed : kExitOk;
}

}  // namespace zpp::cli
