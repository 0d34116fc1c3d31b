// What an engine is made of, and what it refuses to be made of.
#include <array>
#include <utility>

#include "zero/internal/engine_impl.h"

namespace zpp {
namespace {

// Of what decides which collectives a step makes.
uint64_t DigestOf(const EngineOptions& options) {
  return internal::DigestOf(std::to_string(options.audit.every) +
                            (options.norm_group != nullptr ? "g" : ""));
}

uint64_t DigestOf(std::span<const ParamSpec> params) {
  std::string text;
  for (const ParamSpec& p : params) {
    text += ToString(p) + ";" + std::to_string(p.unit) + ";" + std::to_string(p.trainable) + ";" +
            std::to_string(p.compress) + std::to_string(p.counts_in_norm) + ";" +
            (p.dtype ? std::string(DTypeName(*p.dtype)) : "config") + "\n";
  }
  return internal::DigestOf(text);
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
  const std::array<uint64_t, 4> digests = {
      DigestOf(params), internal::DigestOf(ToJson(text).dump()), options.seed, DigestOf(options)};
  const std::array<std::string, 4> names = {
      "the list of parameters", "the configuration", "the seed",
      "what the engine is told of the audit or of the norm group"};
  ZPP_RETURN_IF_ERROR(internal::CheckSame(comm, digests, names));
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
  BeginStep();
  return {};
}

}  // namespace zpp
