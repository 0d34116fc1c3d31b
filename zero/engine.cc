#include "zero/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "zero/compression.h"
#include "zero/internal/engine_impl.h"
#include "zero/internal/plain_math.h"

namespace zpp {

using internal::Convert;
using internal::ElemRange;
using internal::EngineContext;
using internal::VecOf;

namespace {

// FNV-1a over bytes, for telling that ranks differ, not for security.
uint64_t Digest(std::span<const std::byte> bytes, uint64_t start = 0xcbf29ce484222325u) {
  uint64_t hash = start;
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}
uint64_t Digest(const std::string& text) { return Digest(std::as_bytes(std::span(text))); }

// Of what decides which collectives a step makes.
uint64_t DigestOf(const EngineOptions& options) {
  return Digest(std::to_string(options.audit.every) + (options.norm_group != nullptr ? "g" : ""));
}

uint64_t DigestOf(std::span<const ParamSpec> params) {
  std::string text;
  for (const ParamSpec& p : params) {
    text += ToString(p) + ";" + std::to_string(p.unit) + ";" + std::to_string(p.trainable) + ";" +
            std::to_string(p.compress) + std::to_string(p.counts_in_norm) + ";" +
            (p.dtype ? std::string(DTypeName(*p.dtype)) : "config") + "\n";
  }
  return Digest(text);
}

// kMismatch when one of the values is not the same on all ranks.
Status CheckSame(Communicator& comm, std::span<const uint64_t> mine,
                 std::span<const std::string> names) {
  ZPP_ASSIGN_OR_RETURN(const std::vector<uint64_t> all,
                       internal::GatherValues<uint64_t>(comm, mine));
  for (int rank = 0; rank < comm.world(); ++rank) {
    for (size_t i = 0; i < mine.size(); ++i) {
      if (all[static_cast<size_t>(rank) * mine.size() + i] == all[i]) continue;
      return {StatusCode::kMismatch,
              names[i] + " on rank " + std::to_string(rank) +
                  " differs from that on rank 0: all ranks must give the same"};
    }
  }
  return {};
}

Status CheckHpz(const ZeroConfig& config, const Topology& topology) {
  const int size = config.hpz_partition_size;
  if (config.stage != 3 || size <= 1) return {};
  for (int rank = 0; rank < topology.world(); ++rank) {
    const auto node = static_cast<int>(topology.NodeGroup(rank).size());
    if (node % size != 0) {
      return InvalidArgument("zero_hpz_partition_size is " + std::to_string(size) +
                             ", which does not divide the " + std::to_string(node) +
                             " ranks of rank " + std::to_string(rank) + "'s node");
    }
  }
  return {};
}

// Parsed configurations are like that; others may ask for what would silently do nothing.
Status CheckCompression(const ZeroConfig& config) {
  const ZeroPpConfig& pp = config.zero_pp;
  const bool compressed = config.quantized_gradients || config.quantized_weights;
  if (config.stage == 0 && (compressed || pp.reduce_every_micro_batch)) {
    return InvalidArgument(
        "quantized gradients or weights and reduce_every_micro_batch need stage 1, 2 or 3");
  }
  for (const int bits : {pp.quant_bits, pp.intra_bits, pp.weight_bits}) {
    if (bits == 4 || bits == 8 || bits == 16) continue;
    return InvalidArgument("an encoding has 4, 8 or 16 bits, not " + std::to_string(bits));
  }
  for (const QuantSpec& spec :
       {pp.IntraGradients(), pp.InterGradients(), pp.WeightDifferences(), pp.WeightGathers()}) {
    if (compressed) ZPP_RETURN_IF_ERROR(Validate(spec));
  }
  return {};
}

Status CheckConfig(const ZeroConfig& config, const Communicator& comm) {
  if (config.stage < 0 || config.stage > 3) {
    return InvalidArgument("stage is " + std::to_string(config.stage) + "; expected 0 to 3");
  }
  if (config.accumulation_steps < 1) {
    return InvalidArgument("gradient_accumulation_steps is " +
                           std::to_string(config.accumulation_steps) + "; expected 1 or more");
  }
  if (config.reduce_bucket_elems < 1 || config.allgather_bucket_elems < 1) {
    return InvalidArgument("a bucket size is below 1");
  }
  ZPP_RETURN_IF_ERROR(CheckCompression(config));
  ZPP_RETURN_IF_ERROR(internal::ValidateOptimizer(config));
  return CheckHpz(config, comm.topology());
}

}  // namespace

Result<std::unique_ptr<ZeroEngine::Impl>> ZeroEngine::Impl::Create(Communicator& comm,
                                                                   const ZeroConfig& config,
                                                                   std::vector<ParamSpec> params,
                                                                   const EngineOptions& options) {
  ZPP_RETURN_IF_ERROR(CheckParameters(params));
  ZPP_RETURN_IF_ERROR(CheckConfig(config, comm));
  ZeroConfig text = config;
  text.notes.clear();
  const std::array<uint64_t, 4> digests = {DigestOf(params), Digest(ToJson(text).dump()),
                                           options.seed, DigestOf(options)};
  const std::array<std::string, 4> names = {
      "the list of parameters", "the configuration", "the seed",
      "what the engine is told of the audit or of the norm group"};
  ZPP_RETURN_IF_ERROR(CheckSame(comm, digests, names));
  auto impl = std::make_unique<Impl>();
  impl->context_.comm = &comm;
  impl->context_.config = config;
  impl->context_.map = MakeShardMap(params, config, comm.world());
  impl->context_.params = std::move(params);
  impl->context_.seed = options.seed;
  impl->norm_group_ = options.norm_group;
  ZPP_RETURN_IF_ERROR(impl->CreateParts(options));
  return impl;
}

Status ZeroEngine::Impl::CreateParts(const EngineOptions& options) {
  const ZeroConfig& config = context_.config;
  ZPP_ASSIGN_OR_RETURN(owned_, internal::OwnedState::Create(context_));
  ZPP_ASSIGN_OR_RETURN(store_, internal::WeightStore::Create(&context_));
  ZPP_ASSIGN_OR_RETURN(gatherer_, internal::UnitGatherer::Create(&context_, &*owned_));
  ZPP_ASSIGN_OR_RETURN(reducer_, internal::GradientReducer::Create(&context_));
  if (config.fp16.enabled) {
    ZPP_ASSIGN_OR_RETURN(scaler_, LossScaler::Create(config.fp16));
  }
  ZPP_ASSIGN_OR_RETURN(bits_, BitControl::Create(context_.num_buckets(),
                                                 {.min_bits = config.zero_pp.quant_bits,
                                                  .max_rel_error = config.zero_pp.max_rel_error}));
  std::vector<AuditBucket> buckets;
  for (int b = 0; b < context_.num_buckets(); ++b) {
    const auto& pieces = context_.bucket(b).pieces;
    std::string name = pieces.empty()
                           ? "(padding)"
                           : context_.params[static_cast<size_t>(pieces.front().param)].name;
    if (pieces.size() > 1) {
      name += " .. " + context_.params[static_cast<size_t>(pieces.back().param)].name;
    }
    const bool compressed = reducer_->compresses(b);
    buckets.push_back(
        {.name = std::move(name),
         .compressed = compressed,
         .shard_elems = context_.Own(b).elems,
         .rows = compressed ? RowsOfShard(context_.map, context_.params, b, context_.comm->rank())
                            : std::vector<RowRun>()});
  }
  ZPP_ASSIGN_OR_RETURN(audit_, Audit::Create(options.audit, std::move(buckets), config.adam));
  since_audit_.resize(static_cast<size_t>(context_.num_buckets()));
  sent_before_.assign(static_cast<size_t>(context_.comm->topology().tiers()), 0);
  TakeTraffic();
  BeginStep();
  return {};
}

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

Status ZeroEngine::Impl::CheckSameWeights(std::span<const ConstVec> weights) const {
  std::vector<uint64_t> digests;
  std::vector<std::string> names;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto bytes = static_cast<size_t>(weights[i].elems * SizeOf(weights[i].dtype));
    digests.push_back(Digest({static_cast<const std::byte*>(weights[i].data), bytes},
                             static_cast<uint64_t>(weights[i].dtype) + 1));
    names.push_back("the initial value of parameter " + ToString(context_.params[i]));
  }
  return CheckSame(*context_.comm, digests, names);
}

Status ZeroEngine::Impl::LoadWeights(std::span<const ConstVec> weights) {
  if (weights.size() != context_.params.size()) {
    return InvalidArgument("LoadWeights: " + std::to_string(weights.size()) + " tensors for " +
                           std::to_string(context_.params.size()) + " parameters");
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].elems != context_.params[i].elems() || !IsFloat(weights[i].dtype)) {
      return InvalidArgument("LoadWeights: parameter " + ToString(context_.params[i]) +
                             " is given " + std::to_string(weights[i].elems) + " elements of " +
                             std::string(DTypeName(weights[i].dtype)));
    }
  }
  ZPP_RETURN_IF_ERROR(gatherer_->CheckReleased());
  ZPP_RETURN_IF_ERROR(CheckSameWeights(weights));
  ZPP_RETURN_IF_ERROR(DropStep());
  for (int b = 0; b < context_.num_buckets(); ++b) {
    std::fill(owned_->m(b).begin(), owned_->m(b).end(), 0.0f);
    std::fill(owned_->v(b).begin(), owned_->v(b).end(), 0.0f);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    ZPP_RETURN_IF_ERROR(SetWeights(static_cast<int>(i), weights[i]));
  }
  reducer_->DropResiduals();
  carry_ = {};
  residual_factor_ = 1;
  steps_ = applied_ = 0;
  if (context_.config.fp16.enabled) {
    ZPP_ASSIGN_OR_RETURN(scaler_, LossScaler::Create(context_.config.fp16));
  }
  RestartErrorControl();
  broken_ = {};
  BeginStep();
  return {};
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

// Master, shard and replica of one parameter, as far as this rank has them.
Status ZeroEngine::Impl::SetWeights(int param, const ConstVec& values) {
  const ParamPlace& place = context_.map.places[static_cast<size_t>(param)];
  if (const Vec replica = store_->slab(place.slab); replica.elems > 0) {
    ZPP_RETURN_IF_ERROR(Convert(values, internal::Slice(replica, place.slab_first, values.elems)));
  }
  const Slab& slab = context_.slab(place.slab);
  for (int b = slab.first_bucket; b < slab.first_bucket + slab.num_buckets; ++b) {
    const ElemRange own = context_.Own(b);
    for (const ParamPiece& whole : context_.bucket(b).pieces) {
      const ParamPiece piece = internal::Intersect(whole, own);
      if (piece.param != param || piece.elems <= 0) continue;
      const ConstVec part = internal::Slice(values, piece.param_first, piece.elems);
      const int64_t at = piece.bucket_first - own.first;
      if (!owned_->master(b).empty()) {
        ZPP_RETURN_IF_ERROR(
            Convert(part, internal::Slice(VecOf(owned_->master(b)), at, piece.elems)));
      }
      if (const Vec shard = owned_->shard_weights(b); shard.elems > 0) {
        ZPP_RETURN_IF_ERROR(Convert(part, internal::Slice(shard, at, piece.elems)));
      }
    }
  }
  return {};
}

Status ZeroEngine::Impl::Gather(int unit) {
  ZPP_RETURN_IF_ERROR(CheckUnit("Gather", unit));
  if (context_.config.stage != 3) return {};
  ZPP_RETURN_IF_ERROR(broken_);
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
