#include "zero/compression.h"

namespace zpp {
namespace {

// `spec` with blocks that stay inside the slab's rows.
QuantSpec InRows(QuantSpec spec, const SlabKind& kind) {
  switch (spec.format) {
    case Format::kNone:
      break;
    case Format::kInt8:
      spec.block_elems = kind.int8_block_elems;
      break;
    case Format::kInt4:
      spec.block_elems = kind.int4_block_elems;
      break;
  }
  return spec;
}

QuantSpec GradientSpec(const ZeroConfig& config, const SlabKind& kind, int bits) {
  QuantSpec spec = bits == 4   ? QuantSpec::Int4(config.zero_pp.gradient_code)
                   : bits == 8 ? QuantSpec::Int8()
                               : QuantSpec::None();
  if (spec.compressed()) spec.rounding = config.zero_pp.rounding;
  return InRows(spec, kind);
}

// The config decides whether to compress, not the size of a bucket.
CollectivePolicy Always(const QuantSpec& intra, const QuantSpec& inter) {
  return {.intra = intra, .inter = inter, .min_compress_bytes = 0};
}

}  // namespace

int InitialGradientBits(const ZeroConfig& config, const SlabKind& kind) {
  const bool compressed = config.quantized_gradients && kind.compressed && config.stage > 0;
  return compressed ? config.zero_pp.quant_bits : 16;
}

CollectivePolicy GradientPolicy(const ZeroConfig& config, const SlabKind& kind, int inter_bits) {
  return Always(GradientSpec(config, kind, config.zero_pp.intra_bits),
                GradientSpec(config, kind, inter_bits));
}

DType GradientType(const ZeroConfig& config, const SlabKind& kind, bool sixteen_bits) {
  const DType plain = config.communication.value_or(kind.compute);
  return sixteen_bits && plain == DType::kF32 ? DType::kBF16 : plain;
}

bool SendsDifferences(const ZeroConfig& config, const SlabKind& kind) {
  return config.quantized_weights && kind.compressed && kind.unit < 0 && kind.trainable &&
         (config.stage == 1 || config.stage == 2) &&
         config.zero_pp.WeightDifferences().compressed();
}

CollectivePolicy DifferencePolicy(const ZeroConfig& config, const SlabKind& kind) {
  const QuantSpec spec = InRows(config.zero_pp.WeightDifferences(), kind);
  return Always(spec, spec);
}

bool CompressesGathers(const ZeroConfig& config, const SlabKind& kind) {
  return config.quantized_weights && kind.compressed && kind.unit >= 0 &&
         config.zero_pp.WeightGathers().compressed();
}

CollectivePolicy GatherPolicy(const ZeroConfig& config, const SlabKind& kind) {
  const QuantSpec spec = InRows(config.zero_pp.WeightGathers(), kind);
  return Always(spec, spec);
}

}  // namespace zpp
