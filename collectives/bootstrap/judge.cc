#include "collectives/bootstrap/internal/judge.h"

#include <algorithm>

#include "collectives/bootstrap/internal/hello.h"
#include "collectives/bootstrap/internal/mailbox.h"
#include "collectives/bootstrap/internal/rank_names.h"

namespace zpp::internal {
namespace {

std::string RankName(int rank) { return "rank " + std::to_string(rank); }

std::string Tenths(double seconds) {
  const auto tenths = static_cast<int64_t>(seconds * 10 + 0.5);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

Patience Patience::Of(double heartbeat_s, double timeout_s) {
  const double silent_s = std::max(timeout_s, 2 * heartbeat_s);
  return {.heartbeat_s = heartbeat_s,
          .suspect_s = std::min(std::max(5 * heartbeat_s, 1.0), silent_s),
          .silent_s = silent_s};
}

Judge::Judge(int world, const Patience& patience, double now_s)
    : world_(world), patience_(patience), seats_(static_cast<size_t>(world)), last_tick_s_(now_s) {
  for (Seat& seat : seats_) seat.heard_s = now_s;
}

bool Judge::Present(int rank) const {
  const Seat& seat = seats_[static_cast<size_t>(rank)];
  return !seat.left && !seat.gone;
}

void Judge::Handle(int rank, const Frame& frame, double now_s) {
  Seat& seat = seats_[static_cast<size_t>(rank)];
  seat.heard_s = now_s;
  if (verdict_) return;
  switch (frame.type) {
    case FrameType::kGather:
      return OnGather(rank, frame.body, now_s);
    case FrameType::kReport:
      return OnReport(rank, frame.body, now_s);
    case FrameType::kAbort:
      return Decide({StatusCode::kAborted, RankName(rank) + " aborted: " + frame.body});
    case FrameType::kLeave:
      seat.left = true;
      return CheckGatherings(
          now_s);  // at once: the hub's own Leave may be the last that it handles
    case FrameType::kHeartbeat:
      return;
    case FrameType::kHello:
    case FrameType::kAck:
    case FrameType::kRefuse:
    case FrameType::kWelcome:
    case FrameType::kGathered:
    case FrameType::kGatherFailed:
    case FrameType::kVerdict:
      return Lose(rank, "broke the control protocol");
  }
}

void Judge::Closed(int rank, const std::string& why, double /*now_s*/) {
  Seat& seat = seats_[static_cast<size_t>(rank)];
  const bool expected = seat.left;
  seat.gone = true;
  if (!expected) Lose(rank, why);
}

void Judge::OnGather(int rank, const std::string& body, double now_s) {
  GatherBody gather;
  if (!GatherBody::Unpack(body, &gather)) return Lose(rank, "broke the control protocol");
  if (const auto failed = failed_.find(gather.sequence); failed != failed_.end()) {
    const std::string packed = PackGatherFailed(gather.sequence, failed->second);
    mail_.push_back({rank, {FrameType::kGatherFailed, packed}});
    return;
  }
  Gathering& gathering = gatherings_[gather.sequence];
  gathering.blobs[rank] = std::move(gather.blob);
  if (gather.patience_ms != UINT32_MAX) {
    gathering.until_s[rank] = now_s + gather.patience_ms * 1e-3;
  }
  if (gathering.blobs.size() < static_cast<size_t>(world_)) return;
  std::vector<std::string> blobs;
  for (auto& [of, blob] : gathering.blobs) blobs.push_back(std::move(blob));
  gatherings_.erase(gather.sequence);
  const std::string packed = PackGathered(gather.sequence, blobs);
  for (int to = 0; to < world_; ++to) {
    if (Present(to)) mail_.push_back({to, {FrameType::kGathered, packed}});
  }
}

void Judge::FailGathering(uint32_t sequence, const Status& why) {
  for (const auto& [rank, blob] : gatherings_[sequence].blobs) {
    if (Present(rank)) {
      mail_.push_back({rank, {FrameType::kGatherFailed, PackGatherFailed(sequence, why)}});
    }
  }
  gatherings_.erase(sequence);
  failed_.emplace(sequence, why);
}

void Judge::CheckGatherings(double now_s) {
  std::vector<std::pair<uint32_t, Status>> failed;
  for (const auto& [sequence, gathering] : gatherings_) {
    std::vector<int> missing;
    for (int rank = 0; rank < world_; ++rank) {
      if (gathering.blobs.count(rank) == 0) missing.push_back(rank);
    }
    const auto left =
        std::find_if(missing.begin(), missing.end(), [&](int r) { return !Present(r); });
    const bool late = std::any_of(gathering.until_s.begin(), gathering.until_s.end(),
                                  [&](const auto& entry) { return entry.second <= now_s; });
    if (left != missing.end()) {
      failed.emplace_back(sequence, Status::PeerLost(*left, RankName(*left) + " has left"));
    } else if (late) {
      failed.emplace_back(sequence, Status(StatusCode::kDeadlineExceeded,
                                           NameRanks(missing) + " never came to the exchange"));
    }
  }
  for (const auto& [sequence, why] : failed) FailGathering(sequence, why);
}

void Judge::OnReport(int rank, const std::string& body, double now_s) {
  ReportBody report;
  if (!ReportBody::Unpack(body, &report) || report.suspect >= world_) {
    return Lose(rank, "broke the control protocol");
  }
  Seat& seat = seats_[static_cast<size_t>(rank)];
  if (report.suspect >= 0) seat.suspects.insert(report.suspect);
  seat.complaint = report.why.empty() ? "it is stuck" : report.why;
  if (!first_report_s_) first_report_s_ = now_s;
  if (report.suspect >= 0 && !Present(report.suspect)) Lose(report.suspect, "has left");
}

std::vector<int> Judge::Reporters(int suspect) const {
  std::vector<int> reporters;
  for (int rank = 0; rank < world_; ++rank) {
    const Seat& seat = seats_[static_cast<size_t>(rank)];
    const bool named = suspect < 0 ? !seat.complaint.empty() : seat.suspects.count(suspect) > 0;
    if (named) reporters.push_back(rank);
  }
  return reporters;
}

int Judge::MostSuspected() const {
  int best = -1, last = -1, quiet = 0;
  size_t votes = 0;
  for (int rank = 0; rank < world_; ++rank) {
    if (!seats_[static_cast<size_t>(rank)].complaint.empty())
      continue;  // it lives and waits itself
    if (!Present(rank)) continue;
    last = rank;
    ++quiet;
    const size_t named = Reporters(rank).size();
    if (named > votes) {
      best = rank;
      votes = named;
    }
  }
  return best < 0 && quiet == 1 ? last : best;
}

void Judge::CheckSilence(double now_s) {
  const double limit_s = first_report_s_ ? patience_.suspect_s : patience_.silent_s;
  int silent = -1;
  size_t votes = 0;
  for (int rank = 1; rank < world_; ++rank) {
    if (!Present(rank) || now_s - seats_[static_cast<size_t>(rank)].heard_s < limit_s) continue;
    const size_t named = Reporters(rank).size();
    if (silent >= 0 && named <= votes) continue;
    silent = rank;
    votes = named;
  }
  if (silent < 0) return;
  Lose(silent,
       "has been silent for " + Tenths(now_s - seats_[static_cast<size_t>(silent)].heard_s));
}

void Judge::JudgeReports(double now_s) {
  if (!first_report_s_ || verdict_) return;
  // The stuck may all report at nearly the same time: wait for those who are late, and for a
  // silence to show.
  if (now_s - *first_report_s_ < patience_.suspect_s) return;
  if (const int rank = MostSuspected(); rank >= 0) {
    return Lose(rank, "lives but takes no part: " + NameRanks(Reporters(-1)) + " waited in vain; " +
                          kMayDiffer);
  }
  std::string why = NameRanks(Reporters(-1)) + " waited in vain";
  for (const int rank : Reporters(-1)) {
    why += "; " + RankName(rank) + ": " + seats_[static_cast<size_t>(rank)].complaint;
    if (why.size() > 400) break;
  }
  Decide({StatusCode::kDeadlineExceeded, why});
}

void Judge::Tick(double now_s) {
  // When this process itself was stopped or starved, the silence was ours.
  const double gap_s = now_s - last_tick_s_;
  if (gap_s > std::max(2 * patience_.heartbeat_s, 0.25 * patience_.suspect_s)) {
    for (Seat& seat : seats_) seat.heard_s = std::min(now_s, seat.heard_s + gap_s);
  }
  last_tick_s_ = now_s;
  if (verdict_) return;
  CheckSilence(now_s);
  JudgeReports(now_s);
  if (!verdict_) CheckGatherings(now_s);
}

void Judge::Lose(int rank, const std::string& why) {
  Decide(Status::PeerLost(rank, RankName(rank) + " " + why));
}

void Judge::Decide(const Status& verdict) {
  if (verdict_) return;
  verdict_ = verdict;
  for (int rank = 0; rank < world_; ++rank) {
    if (Present(rank)) mail_.push_back({rank, {FrameType::kVerdict, PackStatus(verdict)}});
  }
}

std::vector<Judge::Mail> Judge::TakeMail() { return std::exchange(mail_, {}); }

}  // namespace zpp::internal
