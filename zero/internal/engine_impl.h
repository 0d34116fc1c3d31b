// The engine's parts and how a step runs through them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zero/checkpoint.h"
#include "zero/engine.h"
#include "zero/error_control.h"
#include "zero/internal/context.h"
#include "zero/internal/gradient_reducer.h"
#include "zero/internal/owned_state.h"
#include "zero/internal/step_exchange.h"
#include "zero/internal/unit_gatherer.h"
#include "zero/internal/weight_store.h"
#include "zero/loss_scaler.h"

namespace zpp {

class ZeroEngine::Impl {
 public:
  static Result<std::unique_ptr<Impl>> Create(Communicator& comm, const ZeroConfig& config,
                                              std::vector<ParamSpec> params,
                                              const EngineOptions& options);

  // Waits for what is in flight: it writes into the engine's memory.
  ~Impl();

  Status LoadWeights(std::span<const ConstVec> weights);
  Status ReadWeights(int param, std::span<float> out);
  // One parameter in the type it computes in, whole; collective in stage 3.
  Status ReadComputeWeights(int param, const Vec& out);
  Status Gather(int unit);
  Status Release(int unit);
  ConstVec Weights(int param) const;
  Status AddGradient(int param, const ConstVec& grad);
  Status Poll();
  Status EndMicroBatch();
  Result<StepReport> Step();
  Status Save(const std::string& dir, const std::string& user);
  Result<std::string> Load(const std::string& dir);
  Status SaveWeights(const std::string& path);
  Status ReadExported(int param, const Vec& out);

  const internal::EngineContext& context() const { return context_; }
  double loss_scale() const { return scaler_.scale(); }
  void set_learning_rate(double lr);
  int64_t steps() const { return steps_; }
  MemoryEstimate memory() const;
  const Audit& audit() const { return audit_; }

 private:
  // What a step has found out before anything is updated.
  struct Outcome {
    internal::StepFigures figures;
    bool overflow = false;
    double norm = 0;  // of the averaged, unscaled gradient
    double clip = 1;
    float grad_scale = 1;
  };

  Status CreateParts(const EngineOptions& options);
  Status CheckParam(std::string_view call, int param) const;
  Status CheckUnit(std::string_view call, int unit) const;
  Status CheckSameWeights(std::span<const ConstVec> weights) const;
  Status SetWeights(int param, const ConstVec& values);
  Status DropStep();
  Status Keep(const Status& status);
  void BeginStep();
  // Before a step's first bytes: what was sent until now is not its own.
  void NoteStart();

  internal::StepFigures OwnFigures();
  Result<Outcome> Judge();
  Result<StepReport> FinishStep();
  Status Apply(const Outcome& outcome);
  Status Skip();
  Status RunAudit(const Outcome& outcome);
  // Figures and bits as in a new engine.
  void RestartErrorControl();
  void ApplyBits();
  Result<AuditSums> SumsOf(int bucket, const Outcome& outcome);
  Status ControlBits(std::span<const AuditSums> merged);
  std::vector<int64_t> TakeTraffic();
  StepReport ReportOf(const Outcome& outcome);

  // Checkpoints: zero/engine_save.cc and zero/engine_load.cc.
  nlohmann::json StateJson() const;
  Status RestoreJson(const nlohmann::json& state);
  std::vector<ModelTensor> Tensors() const;
  // A checkpoint of this model.
  Result<CheckpointReader> OpenOwn(const std::string& dir) const;
  Status LoadLocally(const CheckpointReader& reader);
  Status LoadBucket(const CheckpointReader& reader, int bucket);
  Status LoadReplica(const CheckpointReader& reader, int param);
  Status LoadResiduals(const CheckpointReader& reader);
  // This rank's encoders' statistics since the last audit: what the next change of bits rests on.
  std::vector<ErrorStats> Statistics() const;
  Status LoadStatistics(const CheckpointReader& reader);

  internal::EngineContext context_;
  Communicator* norm_group_ = nullptr;
  std::optional<internal::OwnedState> owned_;
  std::optional<internal::WeightStore> store_;
  std::optional<internal::UnitGatherer> gatherer_;
  std::optional<internal::GradientReducer> reducer_;
  LossScaler scaler_;
  ResidualCarry carry_;
  BitControl bits_;
  Audit audit_;
  std::vector<AuditSums> since_audit_;  // per bucket; only the gradients' encoders
  ErrorStats weights_since_audit_;
  Status broken_;                     // what left the engine half-way: all calls that train give it
  int64_t steps_ = 0;                 // Step() calls that have ended
  int64_t applied_ = 0;               // those that changed the weights
  bool exact_ = false;                // this step
  float residual_factor_ = 1;         // that the residuals in store are to be multiplied by
  std::vector<int64_t> sent_before_;  // the step under way
  bool under_way_ = false;            // something of this step was called
};

}  // namespace zpp
