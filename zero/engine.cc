#include "zero/engine.h"

#include <utility>

#include "zero/internal/engine_impl.h"
#include "zero/internal/plain_math.h"

namespace zpp {

ZeroEngine::Impl::~Impl() {
  // After a failure both return at once.
  if (gatherer_ && !gatherer_->Drain().ok()) return;
  if (reducer_) static_cast<void>(reducer_->Finish());
}

void ZeroEngine::Impl::BeginStep() {
  exact_ = IsExactStep(applied_ + 1, context_.config.zero_pp.quant_period);
  reducer_->BeginStep(
      {.step = steps_ + 1, .exact = exact_, .truth = audit_.NeedsTrueGradient(steps_ + 1)});
  gatherer_->BeginStep(steps_ + 1, exact_);
  under_way_ = false;
}

Status ZeroEngine::Impl::CheckParam(std::string_view call, int param) const {
  if (param >= 0 && param < static_cast<int>(context_.params.size())) return {};
  return InvalidArgument(std::string(call) + ": there is no parameter " + std::to_string(param) +
                         "; there are " + std::to_string(context_.params.size()));
}

Status ZeroEngine::Impl::CheckUnit(std::string_view call, int unit) const {
  const auto units = static_cast<int>(context_.map.slabs_of_unit.size());
  if (unit >= 0 && unit < units) return {};
  return InvalidArgument(std::string(call) + ": there is no unit " + std::to_string(unit) +
                         "; there are " + std::to_string(units));
}

// Everything gathered is stale, and what this step has of gradients so far is forgotten: once the
// reductions that were started have ended, since they read and write the buffers.
Status ZeroEngine::Impl::DropStep() {
  ZPP_RETURN_IF_ERROR(gatherer_->Invalidate());
  ZPP_RETURN_IF_ERROR(reducer_->Finish());
  reducer_->EndStep();
  return {};
}

// An argument can be put right. Anything else leaves the step half done on this rank.
Status ZeroEngine::Impl::Keep(const Status& status) {
  if (!status.ok() && status.code() != StatusCode::kInvalidArgument && broken_.ok()) {
    broken_ = status;
  }
  return status;
}

Status ZeroEngine::Impl::Gather(int unit) {
  ZPP_RETURN_IF_ERROR(CheckUnit("Gather", unit));
  if (context_.config.stage != 3) return {};
  ZPP_RETURN_IF_ERROR(broken_);
  NoteStart();
  return Keep(gatherer_->Gather(unit));
}

Status ZeroEngine::Impl::Release(int unit) {
  ZPP_RETURN_IF_ERROR(CheckUnit("Release", unit));
  if (context_.config.stage != 3) return {};
  return Keep(gatherer_->Release(unit));
}

ConstVec ZeroEngine::Impl::Weights(int param) const {
  if (!CheckParam("Weights", param).ok()) return {};
  const ParamPlace& place = context_.map.places[static_cast<size_t>(param)];
  const bool gathered = context_.slab(place.slab).kind.unit >= 0;
  const Vec slab = gathered ? gatherer_->slab(place.slab) : store_->slab(place.slab);
  const int64_t elems = context_.params[static_cast<size_t>(param)].elems();
  if (slab.data == nullptr) return {slab.dtype, nullptr, 0};
  return internal::AsConst(internal::Slice(slab, place.slab_first, elems));
}

Status ZeroEngine::Impl::AddGradient(int param, const ConstVec& grad) {
  ZPP_RETURN_IF_ERROR(CheckParam("AddGradient", param));
  const ParamSpec& spec = context_.params[static_cast<size_t>(param)];
  if (!spec.trainable) {
    return InvalidArgument("AddGradient: " + ToString(spec) + " is frozen");
  }
  if (grad.elems != spec.elems() || !IsFloat(grad.dtype)) {
    return InvalidArgument("AddGradient: " + ToString(spec) + " is given " +
                           std::to_string(grad.elems) + " elements of " +
                           std::string(DTypeName(grad.dtype)));
  }
  if (reducer_->micro_batch() >= context_.config.accumulation_steps) {
    return InvalidArgument("AddGradient: all " +
                           std::to_string(context_.config.accumulation_steps) +
                           " micro-batches have ended; Step() is due");
  }
  ZPP_RETURN_IF_ERROR(broken_);
  NoteStart();
  return Keep(reducer_->Add(param, grad));
}

Status ZeroEngine::Impl::Poll() {
  ZPP_RETURN_IF_ERROR(broken_);
  ZPP_RETURN_IF_ERROR(Keep(reducer_->Poll()));
  return Keep(gatherer_->Poll());
}

Status ZeroEngine::Impl::EndMicroBatch() {
  if (reducer_->micro_batch() >= context_.config.accumulation_steps) {
    return InvalidArgument("EndMicroBatch: all " +
                           std::to_string(context_.config.accumulation_steps) +
                           " micro-batches have ended; Step() is due");
  }
  ZPP_RETURN_IF_ERROR(broken_);
  NoteStart();
  return Keep(reducer_->EndMicroBatch());
}

void ZeroEngine::Impl::set_learning_rate(double lr) {
  context_.config.adam.lr = lr;
  context_.config.sgd.lr = lr;
}

MemoryEstimate ZeroEngine::Impl::memory() const {
  MemoryEstimate held;
  held.weights_bytes = store_->bytes() + owned_->weights_bytes();
  int64_t master_elems = 0;
  for (int b = 0; b < context_.num_buckets(); ++b) {
    master_elems += static_cast<int64_t>(owned_->master(b).size());
  }
  held.master_bytes = master_elems * static_cast<int64_t>(sizeof(float));
  held.moments_bytes = owned_->optimizer_bytes() - held.master_bytes;
  held.gradients_bytes = reducer_->accumulator_bytes() + reducer_->shard_bytes();
  held.gathered_bytes = gatherer_->gathered_bytes();
  held.secondary_bytes = gatherer_->secondary_bytes();
  held.residuals_bytes = reducer_->residual_bytes();
  held.staging_bytes = store_->staging_bytes();
  held.offloaded = context_.config.offload_optimizer.enabled;
  return held;
}

Result<std::unique_ptr<ZeroEngine>> ZeroEngine::Create(Communicator& data_parallel,
                                                       const ZeroConfig& config,
                                                       std::vector<ParamSpec> params,
                                                       const EngineOptions& options) {
  ZPP_ASSIGN_OR_RETURN(auto impl, Impl::Create(data_parallel, config, std::move(params), options));
  return std::unique_ptr<ZeroEngine>(new ZeroEngine(std::move(impl)));
}

ZeroEngine::ZeroEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ZeroEngine::~ZeroEngine() = default;

Status ZeroEngine::LoadWeights(std::span<const ConstVec> weights) {
  return impl_->LoadWeights(weights);
}
Status ZeroEngine::ReadWeights(int param, std::span<float> out) {
  return impl_->ReadWeights(param, out);
}
Status ZeroEngine::Gather(int unit) { return impl_->Gather(unit); }
Status ZeroEngine::Release(int unit) { return impl_->Release(unit); }
ConstVec ZeroEngine::Weights(int param) const { return impl_->Weights(param); }
Status ZeroEngine::AddGradient(int param, ConstVec grad) { return impl_->AddGradient(param, grad); }
Status ZeroEngine::Poll() { return impl_->Poll(); }
Status ZeroEngine::EndMicroBatch() { return impl_->EndMicroBatch(); }
Result<StepReport> ZeroEngine::Step() { return impl_->Step(); }
double ZeroEngine::loss_scale() const { return impl_->loss_scale(); }
void ZeroEngine::set_learning_rate(double lr) { impl_->set_learning_rate(lr); }
int64_t ZeroEngine::steps() const { return impl_->steps(); }
const ZeroConfig& ZeroEngine::config() const { return impl_->context().config; }
std::span<const ParamSpec> ZeroEngine::params() const { return impl_->context().params; }
MemoryEstimate ZeroEngine::memory() const { return impl_->memory(); }
const Audit& ZeroEngine::audit() const { return impl_->audit(); }
Status ZeroEngine::Save(const std::string& dir, const std::string& user) {
  return impl_->Save(dir, user);
}
Result<std::string> ZeroEngine::Load(const std::string& dir) { return impl_->Load(dir); }
Status ZeroEngine::SaveWeights(const std::string& path) { return impl_->SaveWeights(path); }

}  // namespace zpp
