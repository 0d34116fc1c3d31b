// What rank 0 knows about the ranks, and its one verdict. No sockets, no clock: times are given, in
// seconds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collectives/bootstrap/internal/connection.h"
#include "common/status.h"

namespace zpp::internal {

// When silence counts.
struct Patience {
  double heartbeat_s = 0.2;
  // A rank that somebody waits for and that has been silent for so long is lost.
  double suspect_s = 1.0;
  // A rank that has been silent for so long is lost though nobody waits for it.
  double silent_s = 30.0;

  // max(5 heartbeats, 1 s), and never more than `timeout_s`, which is also the longest silence.
  static Patience Of(double heartbeat_s, double timeout_s);
};

class Judge {
 public:
  struct Mail {
    int to = -1;
    Frame frame;
  };

  Judge(int world, const Patience& patience, double now_s);

  // A frame of `rank` has come (rank 0's own included).
  void Handle(int rank, const Frame& frame, double now_s);
  // `rank`'s connection has ended.
  void Closed(int rank, const std::string& why, double now_s);
  // To be called at least every heartbeat, after all sockets have been read.
  void Tick(double now_s);
  // What is to be sent, in order. A verdict goes to every rank that is still there, rank 0
  // included.
  std::vector<Mail> TakeMail();
  const std::optional<Status>& verdict() const { return verdict_; }

 private:
  struct Seat {
    double heard_s = 0;
    bool left = false;
    bool gone = false;
    std::set<int> suspects;  // whom its reports named
    std::string complaint;   // of its last report; empty: it has made none
  };
  struct Gathering {
    std::map<int, std::string> blobs;
    std::map<int, double> until_s;
  };

  void OnGather(int rank, const std::string& body, double now_s);
  void OnReport(int rank, const std::string& body, double now_s);
  void CheckGatherings(double now_s);
  void FailGathering(uint32_t sequence, const Status& why);
  void CheckSilence(double now_s);
  void JudgeReports(double now_s);
  int MostSuspected() const;
  std::vector<int> Reporters(int suspect) const;  // -1: all
  void Lose(int rank, const std::string& why);
  void Decide(const Status& verdict);
  bool Present(int rank) const;

  const int world_;
  const Patience patience_;
  std::vector<Seat> seats_;
  std::map<uint32_t, Gathering> gatherings_;
  std::map<uint32_t, Status> failed_;  // gatherings: whoever comes late is told at once
  std::optional<double> first_report_s_;
  double last_tick_s_;
  std::optional<Status> verdict_;
  std::vector<Mail> mail_;
};

}  // namespace zpp::internal
