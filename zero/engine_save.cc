// What an engine puts into a checkpoint.
#include <deque>

#include "zero/checkpoint_export.h"
#include "zero/compression.h"
#include "zero/internal/engine_impl.h"
#include "zero/internal/plain_math.h"
#include "zero/internal/state_names.h"

namespace zpp {
namespace {

using internal::ElemRange;
using internal::EngineContext;
using internal::StateName;

// Gathers the pieces of one rank; keeps what it had to copy.
class Pieces {
 public:
  explicit Pieces(const EngineContext& context) : context_(context) {}

  // `values` are elements [range.first, ...) of the bucket.
  void Add(const char* what, int bucket, const ElemRange& range, const ConstVec& values) {
    if (values.elems == 0) return;
    for (const ParamPiece& whole : context_.bucket(bucket).pieces) {
      AddPiece(what, whole, range, values, false);
    }
  }

  Status AddResidual(int bucket, const ReduceFeedback::Piece& piece) {
    kept_.emplace_back(static_cast<size_t>(piece.elems));
    ZPP_RETURN_IF_ERROR(piece.residual.ReadUnscaled(kept_.back()));
    const Communicator& comm = *context_.comm;
    const int domain = comm.topology().DomainId(piece.tier, comm.rank());
    prefixes_.push_back(internal::ResidualPrefix(piece, domain));
    prefixes_.back().pop_back();  // StateName() adds the slash
    for (const ParamPiece& whole : context_.bucket(bucket).pieces) {
      AddPiece(prefixes_.back().c_str(), whole, {piece.first_elem, piece.elems},
               internal::VecOf(std::span<const float>(kept_.back())), true);
    }
    return {};
  }

  // Borrowed. One row per rank, in the machine's own layout.
  void AddStatistics(std::span<const ErrorStats> statistics) {
    const auto bytes = static_cast<int64_t>(statistics.size_bytes());
    pieces_.push_back({.name = internal::kStatisticsName,
                       .shape = {context_.comm->world(), bytes},
                       .first_elem = context_.comm->rank() * bytes,
                       .dtype = DType::kByte,
                       .data = statistics.data(),
                       .elems = bytes});
  }

  std::span<const StatePiece> all() const { return pieces_; }

 private:
  void AddPiece(const char* what, const ParamPiece& whole, const ElemRange& range,
                const ConstVec& values, bool partial) {
    const ParamPiece piece = internal::Intersect(whole, range);
    if (piece.elems <= 0) return;
    const ParamSpec& param = context_.params[static_cast<size_t>(piece.param)];
    const ConstVec part = internal::Slice(values, piece.bucket_first - range.first, piece.elems);
    pieces_.push_back({.name = StateName(what, param.name),
                       .shape = param.shape,
                       .first_elem = piece.param_first,
                       .dtype = part.dtype,
                       .data = part.data,
                       .elems = part.elems,
                       .partial = partial});
  }

  const EngineContext& context_;
  std::vector<StatePiece> pieces_;
  std::deque<std::vector<float>> kept_;
  std::deque<std::string> prefixes_;
};

}  // namespace

std::vector<ModelTensor> ZeroEngine::Impl::Tensors() const {
  std::vector<ModelTensor> tensors;
  for (const ParamSpec& param : context_.params) tensors.push_back({param.name, param.shape});
  return tensors;
}

nlohmann::json ZeroEngine::Impl::StateJson() const {
  const LossScalerState& scaler = scaler_.state();
  ZeroConfig config = context_.config;
  config.notes.clear();
  return {{"steps", steps_},
          {"applied_steps", applied_},
          {"world", context_.map.world},
          // Reductions nest along the nodes, so their layout belongs to the results' provenance.
          {"layout", context_.comm->topology().Summary()},
          {"buckets", context_.num_buckets()},
          {"bits", bits_.state()},
          {"clip_mean", carry_.mean()},
          {"residual_factor", residual_factor_},
          {"loss_scaler",
           {{"scale", scaler.scale},
            {"steps", scaler.steps},
            {"last_overflow_step", scaler.last_overflow_step},
            {"hysteresis_left", scaler.hysteresis_left}}},
          {"config", ToJson(config)}};
}

std::vector<ErrorStats> ZeroEngine::Impl::Statistics() const {
  std::vector<ErrorStats> statistics;
  for (const AuditSums& sums : since_audit_) {
    statistics.push_back(sums.inner);
    statistics.push_back(sums.outer);
    statistics.push_back(sums.period);
  }
  statistics.push_back(weights_since_audit_);
  return statistics;
}

Status ZeroEngine::Impl::Save(const std::string& dir, const std::string& user) {
  ZPP_RETURN_IF_ERROR(broken_);
  if (!reducer_->untouched()) {
    return InvalidArgument("Save: step " + std::to_string(steps_ + 1) +
                           " has begun, and its gradients are no part of a checkpoint: call Step() "
                           "first");
  }
  Pieces pieces(context_);
  // In stage 0 all ranks have the same.
  const bool owner = context_.config.stage > 0 || context_.comm->rank() == 0;
  for (int b = 0; owner && b < context_.num_buckets(); ++b) {
    const ElemRange own = context_.Own(b);
    const auto floats = [](std::span<const float> v) { return internal::VecOf(v); };
    pieces.Add("master", b, own, floats(owned_->master(b)));
    pieces.Add("m", b, own, floats(owned_->m(b)));
    pieces.Add("v", b, own, floats(owned_->v(b)));
    if (!context_.kind(b).trainable) {
      const Vec gathered = owned_->shard_weights(b);
      pieces.Add("frozen", b, own,
                 internal::AsConst(gathered.elems > 0 ? gathered : store_->own(b)));
    }
    if (SendsDifferences(context_.config, context_.kind(b))) {
      pieces.Add("replica", b, own, internal::AsConst(store_->own(b)));
    }
    for (const ReduceFeedback::Piece& piece : reducer_->feedback(b).pieces()) {
      ZPP_RETURN_IF_ERROR(pieces.AddResidual(b, piece));
    }
  }
  const std::vector<ErrorStats> statistics = Statistics();
  if (context_.config.stage > 0) pieces.AddStatistics(statistics);
  ZPP_RETURN_IF_ERROR(SaveCheckpoint(*context_.comm, dir,
                                     {.step = steps_,
                                      .model_fingerprint = ModelFingerprint(Tensors()),
                                      .state = StateJson(),
                                      .user = user},
                                     pieces.all()));
  if (!context_.config.gather_16bit_on_save) return {};
  return SaveWeights(dir + "/weights.safetensors");
}

// From the master where the replica follows it at a distance.
Status ZeroEngine::Impl::ReadExported(int param, const Vec& out) {
  const ParamSpec& spec = context_.params[static_cast<size_t>(param)];
  const int slab = context_.map.places[static_cast<size_t>(param)].slab;
  const bool follows = SendsDifferences(context_.config, context_.slab(slab).kind);
  if (out.dtype != DType::kF32 && !follows) return ReadComputeWeights(param, out);
  if (out.dtype == DType::kF32) {
    return ReadWeights(param, {static_cast<float*>(out.data), static_cast<size_t>(out.elems)});
  }
  std::vector<float> master(static_cast<size_t>(spec.elems()));
  ZPP_RETURN_IF_ERROR(ReadWeights(param, master));
  return internal::Convert(internal::VecOf(std::span<const float>(master)), out);
}

Status ZeroEngine::Impl::SaveWeights(const std::string& path) {
  ZPP_RETURN_IF_ERROR(broken_);
  std::vector<ExportTensor> tensors;
  for (const ParamSpec& param : context_.params) {
    tensors.push_back({param.name, param.shape, param.dtype.value_or(context_.config.compute)});
  }
  return ExportSafetensors(*context_.comm, path, tensors, [&](size_t index, const Vec& out) {
    return ReadExported(static_cast<int>(index), out);
  });
}

}  // namespace zpp
