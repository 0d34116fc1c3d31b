#include "collectives/encoding_choice.h"

#include <algorithm>

#include "quant/wire.h"

namespace zpp {
namespace {

// What the link model needs to know of the codec: one core encodes and decodes an element at about
// this rate (fp32 bytes), and a compressed hop costs so much however small it is.
constexpr double kCodec_bytes_per_s = 12e9;
constexpr double kCodedHop_s = 20e-6;
// An all-reduce whose messages together are this small is dominated by its rounds, not by its
// bytes.
constexpr int64_t kOneShot_bytes = 8 * 1024;

struct Chooser {
  const ChoiceArgs& args;
  std::string why;

  void Say(const std::string& sentence) {
    if (why.find(sentence) != std::string::npos) return;
    if (!why.empty()) why += "; ";
    why += sentence;
  }

  // The next finer encoding whose error on N(0,1) is allowed.
  QuantSpec WithinError(QuantSpec spec) {
    const double limit = args.policy->max_rel_error;
    if (limit <= 0 || !spec.compressed() || ExpectedRelativeError(spec) <= limit) return spec;
    const std::string from = ToString(spec);
    if (spec.format == Format::kInt4) {
      QuantSpec finer = QuantSpec::Int8();
      finer.rounding = spec.rounding;
      finer.scale_type = spec.scale_type;
      if (ExpectedRelativeError(finer) <= limit) {
        Say(from + " gives way to " + ToString(finer) + " for max_rel_error");
        return finer;
      }
    }
    Say(from + " gives way to none for max_rel_error");
    return QuantSpec::None();
  }

  // Whether sending `elems` encoded over `link` saves more time than the codec takes.
  bool PaysOver(const LinkModel& link, const QuantSpec& spec, double elems) const {
    const double sample = 1 << 16;
    const double coded = static_cast<double>(MessageBytes(spec, 1 << 16)) / sample;
    const double saved_bytes = static_cast<double>(SizeOf(args.dtype)) - coded;
    const double gain_s = saved_bytes / link.bytes_per_s - 4 / kCodec_bytes_per_s;
    return elems * gain_s > kCodedHop_s;
  }

  // `tier`'s encoding, or none where it does not pay.
  QuantSpec WherePays(const QuantSpec& spec, int tier) {
    if (!spec.compressed()) return spec;
    const int64_t vector_bytes = args.elems * SizeOf(args.dtype);
    const LinkModel& link = args.topology->links()[static_cast<size_t>(tier)];
    const int64_t declared = args.policy->min_compress_bytes;
    if (declared < 0 && link.bytes_per_s > 0) {
      // What is left of the vector when it reaches this tier.
      size_t inside = 1;
      for (int d = 0; d < args.topology->NumDomains(tier) && tier > 0 && !args.policy->flat; ++d) {
        inside = std::max(inside, args.topology->Get(tier, d).ranks.size());
      }
      if (PaysOver(link, spec, static_cast<double>(args.elems) / static_cast<double>(inside))) {
        return spec;
      }
      Say(ToString(spec) + " does not pay on tier " + std::to_string(tier) + " at this size");
      return QuantSpec::None();
    }
    const int64_t least = declared < 0 ? kDefaultMinCompress_bytes : declared;
    if (vector_bytes >= least) return spec;
    Say("not compressed below " + std::to_string(least) + " bytes");
    return QuantSpec::None();
  }
};

bool MayCompress(const ChoiceArgs& args) {
  switch (args.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllReduce:
      return IsFloat(args.dtype) && args.topology->world() > 1;
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kBarrier:
      return false;
  }
  return false;
}

// Tiers on which something is exchanged.
int MovingTiers(const Topology& topology) {
  int tiers = 0;
  for (int t = 0; t < topology.tiers(); ++t) tiers += topology.MaxChildren(t + 1) > 1 ? 1 : 0;
  return tiers;
}

// One round only where it sums in the same order as the other plans do: a result must not depend on
// how a vector is cut into calls.
bool OneShot(const ChoiceArgs& args, const EncodingChoice& choice) {
  if (args.kind != CollectiveKind::kAllReduce || choice.compressed) return false;
  if (!args.policy->flat && MovingTiers(*args.topology) > 1) return false;
  const int64_t peers = args.topology->world() - 1;
  return args.elems <= kOneShot_bytes && args.elems * SizeOf(args.dtype) * peers <= kOneShot_bytes;
}

// The outermost tier that moves anything.
int OutermostMoving(const Topology& topology) {
  int tier = topology.tiers() - 1;
  while (tier > 0 && topology.MaxChildren(tier + 1) == 1) --tier;
  return tier;
}

bool AnyCompressed(CollectiveKind kind, const EncodingChoice& choice) {
  bool any = kind != CollectiveKind::kReduceScatter && choice.gather.compressed();
  if (kind == CollectiveKind::kAllGather) return any;
  for (const QuantSpec& spec : choice.hop) any = any || spec.compressed();
  return any;
}

}  // namespace

EncodingChoice ChooseEncodings(const ChoiceArgs& args) {
  const CollectivePolicy& policy = *args.policy;
  const int outermost = OutermostMoving(*args.topology);
  const QuantSpec user = QuantSpec::None(args.dtype);
  Chooser chooser{args, {}};
  EncodingChoice choice;
  choice.flat = policy.flat;
  choice.gather = user;
  bool summed = false;  // an inner tier has made partial sums
  for (int tier = 0; tier < args.topology->tiers(); ++tier) {
    // A gather knows one encoding, a flat collective one hop: the outermost tier's.
    const bool one_hop = policy.flat || args.kind == CollectiveKind::kAllGather;
    const int priced = one_hop ? outermost : tier;
    const bool moves = args.topology->MaxChildren(tier + 1) > 1;
    QuantSpec spec = user;
    if (summed && policy.wide_partial_sums && !policy.flat && IsFloat(args.dtype)) {
      spec = QuantSpec::None(DType::kF32);
    }
    if (MayCompress(args) && (moves || one_hop)) {
      const QuantSpec& asked = policy.flat || priced > 0 ? policy.inter : policy.intra;
      const QuantSpec coded = chooser.WherePays(chooser.WithinError(asked), priced);
      if (coded.compressed()) spec = coded;
    }
    choice.hop.push_back(spec);
    if (tier == outermost && spec.compressed()) choice.gather = spec;
    summed = summed || moves;
  }
  choice.compressed = AnyCompressed(args.kind, choice);
  choice.one_shot = OneShot(args, choice);
  choice.why = chooser.why;
  return choice;
}

}  // namespace zpp
