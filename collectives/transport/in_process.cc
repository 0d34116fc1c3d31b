#include "collectives/transport/in_process.h"

#include <utility>

#include "collectives/transport/internal/in_process_hub.h"

namespace zpp {
namespace {

using in_process::Hub;

class InProcessControl final : public ControlPlane {
 public:
  InProcessControl(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~InProcessControl() override { hub_->CloseControl(rank_); }

  int rank() const override { return rank_; }
  int world() const override { return hub_->world(); }
  Result<std::vector<std::string>> AllGather(const std::string& mine, Deadline deadline) override {
    return hub_->Gather(rank_, mine, deadline);
  }
  std::optional<Status> Verdict() override { return hub_->Verdict(); }
  int verdict_fd() const override { return hub_->verdict_fd(); }
  void Abort(const std::string& why) override { hub_->AbortAll(rank_, why); }
  void Report(int suspect, const std::string& why) override { hub_->Report(rank_, suspect, why); }
  std::optional<Status> AwaitVerdict(Deadline deadline) override {
    return hub_->AwaitVerdict(deadline);
  }
  void Leave() override { hub_->Leave(rank_); }

 private:
  const std::shared_ptr<Hub> hub_;
  const int rank_;
};

std::vector<std::unique_ptr<Transport>> Transports(const std::shared_ptr<Hub>& hub,
                                                   const InProcessOptions& options) {
  std::vector<std::unique_ptr<Transport>> all;
  for (int rank = 0; rank < hub->world(); ++rank) {
    all.push_back(in_process::MakeTransport(hub, rank, options));
  }
  return all;
}

std::vector<std::shared_ptr<ControlPlane>> Controls(const std::shared_ptr<Hub>& hub) {
  std::vector<std::shared_ptr<ControlPlane>> all;
  for (int rank = 0; rank < hub->world(); ++rank)
    all.push_back(std::make_shared<InProcessControl>(hub, rank));
  return all;
}

}  // namespace

std::vector<std::unique_ptr<Transport>> MakeInProcessGroup(int world,
                                                           const InProcessOptions& options) {
  return Transports(std::make_shared<Hub>(world, /*has_control=*/false, /*has_transport=*/true),
                    options);
}

std::vector<std::shared_ptr<ControlPlane>> MakeInProcessControl(int world) {
  return Controls(std::make_shared<Hub>(world, /*has_control=*/true, /*has_transport=*/false));
}

InProcessWorld MakeInProcessWorld(int world, const InProcessOptions& options) {
  const auto hub = std::make_shared<Hub>(world, /*has_control=*/true, /*has_transport=*/true);
  return {.transports = Transports(hub, options), .controls = Controls(hub)};
}

}  // namespace zpp
