#include "cli/lm/shape.h"

#include <cmath>

#include "quant/noise.h"

namespace zpp::lm {
namespace {

struct Preset {
  std::string_view name;
  LmShape shape;
};

constexpr Preset kPresets[] = {
    {"tiny", {.context = 8, .embed = 16, .hidden = 64, .layers = 1}},
    {"small", {}},
    {"20m", {.context = 16, .embed = 128, .hidden = 2048, .layers = 5}},
};
constexpr int64_t kMaxElems = int64_t{1} << 33;

Status CheckBetween(const char* what, int value, int low, int high) {
  if (value >= low && value <= high) return {};
  return InvalidArgument(std::string(what) + " must be from " + std::to_string(low) + " to " +
                         std::to_string(high) + ", not " + std::to_string(value));
}

// Close to N(0, 1): the sum of four uniform 16-bit numbers, moved and scaled. Whole numbers up to
// the one multiplication, so no machine's libm has a say.
float NearlyNormal(uint64_t seed, int param, int64_t index) {
  const PhiloxBlock random =
      Philox(static_cast<uint64_t>(index), static_cast<uint64_t>(param), seed);
  const uint32_t low = random.word[0], high = random.word[1];
  const auto sum =
      static_cast<int32_t>((low & 0xffffu) + (low >> 16) + (high & 0xffffu) + (high >> 16));
  constexpr float kPerDeviation = 1.0f / 37837.2266f;  // sqrt(4 * 65536^2 / 12)
  return static_cast<float>(sum - 2 * 65535) * kPerDeviation;
}

}  // namespace

DenseShape LmShape::Layer(int layer) const {
  return {.in = layer == 0 ? int64_t{context} * embed : hidden,
          .out = layer == layers ? kByteValues : hidden,
          .in_out = in_out};
}

int64_t LmShape::elems() const {
  int64_t sum = int64_t{kByteValues} * embed;
  for (int layer = 0; layer <= layers; ++layer) {
    const DenseShape dense = Layer(layer);
    sum += dense.in * dense.out + dense.out;
  }
  return sum;
}

Result<LmShape> NamedShape(std::string_view name) {
  std::string known;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return preset.shape;
    known += (known.empty() ? "" : ", ") + std::string(preset.name);
  }
  return InvalidArgument("no model is called '" + std::string(name) + "': there are " + known);
}

Status CheckShape(const LmShape& shape) {
  ZPP_RETURN_IF_ERROR(CheckBetween("--context", shape.context, 1, 4096));
  ZPP_RETURN_IF_ERROR(CheckBetween("--embed", shape.embed, 1, 4096));
  ZPP_RETURN_IF_ERROR(CheckBetween("--hidden", shape.hidden, 1, 65536));
  ZPP_RETURN_IF_ERROR(CheckBetween("--layers", shape.layers, 1, 256));
  if (shape.elems() <= kMaxElems) return {};
  return InvalidArgument("the model has " + std::to_string(shape.elems()) +
                         " parameters; at most " + std::to_string(kMaxElems) + " are possible");
}

std::vector<ParamSpec> ParametersOf(const LmShape& shape) {
  std::vector<ParamSpec> params;
  params.push_back({.name = "embedding.weight", .shape = {kByteValues, shape.embed}, .unit = 0});
  for (int layer = 0; layer <= shape.layers; ++layer) {
    const DenseShape dense = shape.Layer(layer);
    const std::string name = layer == shape.layers ? "head" : "hidden." + std::to_string(layer);
    std::vector<int64_t> dims = {dense.out, dense.in};
    if (dense.in_out) dims = {dense.in, dense.out};
    params.push_back({.name = name + ".weight", .shape = dims, .unit = UnitOfLayer(layer)});
    params.push_back({.name = name + ".bias", .shape = {dense.out}, .unit = UnitOfLayer(layer)});
  }
  return params;
}

int64_t ElemsOf(const ParamSpec& param) {
  int64_t elems = 1;
  for (const int64_t dim : param.shape) elems *= dim;
  return elems;
}

void InitialWeights(const LmShape& shape, uint64_t seed, int param, std::span<float> out) {
  if (param == kEmbeddingParam) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = NearlyNormal(seed, param, static_cast<int64_t>(i));
    return;
  }
  const int layer = (param - 1) / 2;
  if (param == BiasParam(layer)) {
    for (float& value : out) value = 0;
    return;
  }
  const DenseShape dense = shape.Layer(layer);
  // Keeps the variance through quick-GELU; a small head starts from nearly even odds.
  const float gain = layer == shape.layers ? 0.25f : layer == 0 ? 1.0f : 1.5f;
  const float deviation = gain / std::sqrt(static_cast<float>(dense.in));
  for (int64_t to = 0; to < dense.out; ++to) {
    for (int64_t from = 0; from < dense.in; ++from) {
      const int64_t place = dense.in_out ? from * dense.out + to : to * dense.in + from;
      out[static_cast<size_t>(place)] = deviation * NearlyNormal(seed, param, to * dense.in + from);
    }
  }
}

}  // namespace zpp::lm
