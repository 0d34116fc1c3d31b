// How an engine continues from a checkpoint, of its own layout or of another.
#include <algorithm>
#include <map>
#include <type_traits>

#include "collectives/gather_values.h"
#include "zero/compression.h"
#include "zero/internal/engine_impl.h"
#include "zero/internal/plain_math.h"
#include "zero/internal/state_names.h"

namespace zpp {
namespace {

using internal::ElemRange;
using internal::StateName;
using internal::VecOf;

// Reads elements of a parameter's tensor into fp32 or the tensor's own type.
Status ReadPart(const CheckpointReader& reader, const std::string& name, int64_t first,
                const Vec& out) {
  if (!reader.Has(name)) {
    return InvalidArgument(reader.folder() + " has no '" + name +
                           "': it was saved by another optimizer or another kind of training");
  }
  const DType saved = reader.dtype(name);
  if (saved == out.dtype) return reader.Read(name, first, out);
  if (!IsFloat(saved)) return DataLoss("'" + name + "' is not of a float type");
  ZPP_ASSIGN_OR_RETURN(const Buffer raw,
                       Buffer::Allocate(static_cast<size_t>(out.elems * SizeOf(saved))));
  const Vec as_saved{saved, raw.data(), out.elems};
  ZPP_RETURN_IF_ERROR(reader.Read(name, first, as_saved));
  return internal::Convert(internal::AsConst(as_saved), out);
}

template <typename T>
Status Take(const nlohmann::json& state, const char* key, T* out) {
  const auto found = state.find(key);
  if (found == state.end())
    return DataLoss("the checkpoint's state has no '" + std::string(key) + "'");
  const bool fits = std::is_floating_point_v<T> ? found->is_number() : found->is_number_integer();
  if (!fits) return DataLoss("the checkpoint's '" + std::string(key) + "' is not a number");
  *out = found->get<T>();
  return {};
}

// One rank's failure is everyone's.
Status AgreeOn(Communicator& comm, const Status& mine) {
  const std::vector<int> code = {static_cast<int>(mine.code())};
  ZPP_ASSIGN_OR_RETURN(const std::vector<int> all, GatherValues(comm, code));
  ZPP_RETURN_IF_ERROR(mine);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == 0) continue;
    return {static_cast<StatusCode>(all[rank]),
            "rank " + std::to_string(rank) + " could not load the checkpoint: it says why"};
  }
  return {};
}

// What all residuals of one parameter in a checkpoint sum to, in units of the mean.
Result<std::vector<float>> OwedOf(const CheckpointReader& reader, const ParamSpec& param,
                                  int saved_world) {
  std::vector<float> owed(static_cast<size_t>(param.elems()), 0.0f), part(owed.size());
  const std::string ending = "/" + param.name;
  for (const std::string& name : reader.names()) {
    if (!name.starts_with("residual/") || !name.ends_with(ending)) continue;
    // residual/TIER/UNITS/DOMAIN/parameter: the parameter's own name may hold slashes.
    size_t at = 0;
    for (int i = 0; i < 4 && at != std::string::npos; ++i) at = name.find('/', at + 1);
    if (at == std::string::npos || name.compare(at, std::string::npos, ending) != 0) continue;
    const bool mean = name.find("/mean/") < at;
    ZPP_RETURN_IF_ERROR(ReadPart(reader, name, 0, VecOf(std::span<float>(part))));
    const float unit = mean ? 1.0f : 1.0f / static_cast<float>(saved_world);
    for (size_t i = 0; i < owed.size(); ++i) owed[i] += part[i] * unit;
  }
  return owed;
}

// The same, each parameter's read once.
class Owed {
 public:
  Owed(const CheckpointReader& reader, int saved_world)
      : reader_(reader), saved_world_(saved_world) {}

  // out = share * what is owed of elements first ... of the parameter.
  Status Take(const ParamSpec& param, int64_t first, float share, std::span<float> out) {
    auto found = of_param_.find(param.name);
    if (found == of_param_.end()) {
      ZPP_ASSIGN_OR_RETURN(std::vector<float> sum, OwedOf(reader_, param, saved_world_));
      found = of_param_.emplace(param.name, std::move(sum)).first;
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = found->second[static_cast<size_t>(first) + i] * share;
    }
    return {};
  }

 private:
  const CheckpointReader& reader_;
  int saved_world_;
  std::map<std::string, std::vector<float>> of_param_;
};

}  // namespace

Result<std::string> ZeroEngine::Impl::Load(const std::string& dir) {
  ZPP_RETURN_IF_ERROR(gatherer_->CheckReleased());
  Result<CheckpointReader> reader = OpenOwn(dir);
  ZPP_RETURN_IF_ERROR(AgreeOn(*context_.comm, reader.status()));
  // From here on a failure leaves parts of two states.
  Status loaded = DropStep();
  if (loaded.ok()) loaded = AgreeOn(*context_.comm, LoadLocally(*reader));
  broken_ = loaded.ok()
                ? Status()
                : Status(loaded.code(), "the engine's state was lost in a Load() that failed: " +
                                            loaded.message());
  ZPP_RETURN_IF_ERROR(loaded);
  BeginStep();
  return reader->meta().user;
}

Result<CheckpointReader> ZeroEngine::Impl::OpenOwn(const std::string& dir) const {
  ZPP_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(dir));
  ZPP_RETURN_IF_ERROR(CheckSameModel(reader.meta().model_fingerprint, ModelFingerprint(Tensors())));
  return reader;
}

Status ZeroEngine::Impl::LoadLocally(const CheckpointReader& reader) {
  for (int b = 0; b < context_.num_buckets(); ++b) ZPP_RETURN_IF_ERROR(LoadBucket(reader, b));
  for (size_t p = 0; p < context_.params.size(); ++p) {
    ZPP_RETURN_IF_ERROR(LoadReplica(reader, static_cast<int>(p)));
  }
  RestartErrorControl();
  ZPP_RETURN_IF_ERROR(RestoreJson(reader.meta().state));
  ZPP_RETURN_IF_ERROR(LoadResiduals(reader));
  ZPP_RETURN_IF_ERROR(LoadStatistics(reader));
  return {};
}

Status ZeroEngine::Impl::LoadBucket(const CheckpointReader& reader, int bucket) {
  const ElemRange own = context_.Own(bucket);
  const Vec shard = owned_->shard_weights(bucket);
  for (const ParamPiece& whole : context_.bucket(bucket).pieces) {
    const ParamPiece piece = internal::Intersect(whole, own);
    if (piece.elems <= 0) continue;
    const std::string& name = context_.params[static_cast<size_t>(piece.param)].name;
    const int64_t at = piece.bucket_first - own.first;
    const auto read = [&](const char* what, std::span<float> to) -> Status {
      if (to.empty()) return {};
      return ReadPart(reader, StateName(what, name), piece.param_first,
                      internal::Slice(VecOf(to), at, piece.elems));
    };
    ZPP_RETURN_IF_ERROR(read("master", owned_->master(bucket)));
    ZPP_RETURN_IF_ERROR(read("m", owned_->m(bucket)));
    ZPP_RETURN_IF_ERROR(read("v", owned_->v(bucket)));
    if (shard.elems == 0) continue;
    const Vec to = internal::Slice(shard, at, piece.elems);
    const char* from = context_.kind(bucket).trainable ? "master" : "frozen";
    ZPP_RETURN_IF_ERROR(ReadPart(reader, StateName(from, name), piece.param_first, to));
  }
  return {};
}

// A replica that follows by differences is not its master: it is read as it was.
Status ZeroEngine::Impl::LoadReplica(const CheckpointReader& reader, int param) {
  const ParamPlace& place = context_.map.places[static_cast<size_t>(param)];
  const ParamSpec& spec = context_.params[static_cast<size_t>(param)];
  const Vec slab = store_->slab(place.slab);
  if (slab.elems == 0 || spec.elems() == 0) return {};
  const SlabKind& kind = context_.slab(place.slab).kind;
  const std::string replica = StateName("replica", spec.name);
  const bool follows = SendsDifferences(context_.config, kind) && reader.Has(replica);
  const std::string name =
      follows ? replica : StateName(kind.trainable ? "master" : "frozen", spec.name);
  return ReadPart(reader, name, 0, internal::Slice(slab, place.slab_first, spec.elems()));
}

Status ZeroEngine::Impl::RestoreJson(const nlohmann::json& state) {
  if (!state.is_object()) return DataLoss("the checkpoint's state is no object");
  ZPP_RETURN_IF_ERROR(Take(state, "steps", &steps_));
  ZPP_RETURN_IF_ERROR(Take(state, "applied_steps", &applied_));
  ZPP_RETURN_IF_ERROR(Take(state, "residual_factor", &residual_factor_));
  double clip_mean = 1;
  ZPP_RETURN_IF_ERROR(Take(state, "clip_mean", &clip_mean));
  ZPP_RETURN_IF_ERROR(carry_.set_mean(clip_mean));
  const auto scaler = state.find("loss_scaler");
  if (scaler == state.end() || !scaler->is_object()) {
    return DataLoss("the checkpoint's state has no 'loss_scaler'");
  }
  LossScalerState saved;
  ZPP_RETURN_IF_ERROR(Take(*scaler, "scale", &saved.scale));
  ZPP_RETURN_IF_ERROR(Take(*scaler, "steps", &saved.steps));
  ZPP_RETURN_IF_ERROR(Take(*scaler, "last_overflow_step", &saved.last_overflow_step));
  ZPP_RETURN_IF_ERROR(Take(*scaler, "hysteresis_left", &saved.hysteresis_left));
  if (scaler_.dynamic()) ZPP_RETURN_IF_ERROR(scaler_.Restore(saved));
  int buckets = 0;
  ZPP_RETURN_IF_ERROR(Take(state, "buckets", &buckets));
  const auto bits = state.find("bits");
  // Other buckets start at the configured bits again.
  if (buckets != context_.num_buckets() || bits == state.end() || !bits->is_array()) return {};
  std::vector<int32_t> levels;
  for (const auto& level : *bits) {
    if (!level.is_number_integer()) return DataLoss("the checkpoint's 'bits' are not numbers");
    levels.push_back(level.get<int32_t>());
  }
  ZPP_RETURN_IF_ERROR(bits_.Restore(levels));
  ApplyBits();
  return {};
}

// Only the same ranks with the same buckets can go on with them.
Status ZeroEngine::Impl::LoadStatistics(const CheckpointReader& reader) {
  std::vector<ErrorStats> stats = Statistics();
  const auto bytes = static_cast<int64_t>(stats.size() * sizeof(ErrorStats));
  const std::vector<int64_t> shape = {context_.comm->world(), bytes};
  const bool same =
      reader.meta().state.value("layout", std::string()) == context_.comm->topology().Summary();
  if (!same || !reader.Has(internal::kStatisticsName) ||
      reader.shape(internal::kStatisticsName) != shape) {
    return {};
  }
  ZPP_RETURN_IF_ERROR(reader.Read(internal::kStatisticsName, context_.comm->rank() * bytes,
                                  {DType::kByte, stats.data(), bytes}));
  weights_since_audit_ = stats.back();
  for (size_t b = 0; b < since_audit_.size(); ++b) {
    since_audit_[b].inner = stats[3 * b];
    since_audit_[b].outer = stats[3 * b + 1];
    since_audit_[b].period = stats[3 * b + 2];
  }
  return {};
}

// On the same layout to the bit; on another each domain takes an equal share of what is owed, all
// of it at the outermost hop.
Status ZeroEngine::Impl::LoadResiduals(const CheckpointReader& reader) {
  reducer_->DropResiduals();
  const nlohmann::json& state = reader.meta().state;
  int saved_world = 0;
  ZPP_RETURN_IF_ERROR(Take(state, "world", &saved_world));
  if (saved_world < 1) return DataLoss("the checkpoint's 'world' is not positive");
  const Topology& topology = context_.comm->topology();
  const bool same = state.value("layout", std::string()) == topology.Summary();
  const std::vector<int> tiers = reducer_->FeedbackTiers();
  reducer_->set_owes(true);
  Owed owed(reader, saved_world);
  for (int b = 0; b < context_.num_buckets(); ++b) {
    for (ReduceFeedback::Piece& piece : reducer_->feedback(b).pieces()) {
      std::vector<float> values(static_cast<size_t>(piece.elems), 0.0f);
      const std::string prefix =
          internal::ResidualPrefix(piece, topology.DomainId(piece.tier, context_.comm->rank()));
      const float share = (piece.averaged ? 1.0f : static_cast<float>(topology.world())) /
                          static_cast<float>(topology.NumDomains(piece.tier));
      for (const ParamPiece& whole : context_.bucket(b).pieces) {
        const ParamPiece part = internal::Intersect(whole, {piece.first_elem, piece.elems});
        if (part.elems <= 0) continue;
        const ParamSpec& param = context_.params[static_cast<size_t>(part.param)];
        const std::span<float> to =
            std::span(values).subspan(static_cast<size_t>(part.bucket_first - piece.first_elem),
                                      static_cast<size_t>(part.elems));
        const std::string name = prefix + param.name;
        if (same && reader.Has(name)) {
          ZPP_RETURN_IF_ERROR(ReadPart(reader, name, part.param_first, VecOf(to)));
        } else if (!same && piece.tier == tiers.back()) {
          ZPP_RETURN_IF_ERROR(owed.Take(param, part.param_first, share, to));
        }
      }
      ZPP_RETURN_IF_ERROR(piece.residual.Write(values));
    }
  }
  return reducer_->ScaleResiduals(residual_factor_);
}

}  // namespace zpp
