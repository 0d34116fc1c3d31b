// The size of the byte-level language model, its parameters, and what they start from.
//
//   byte window (context) -> embedding (256, embed), concatenated
//     -> hidden layers of quick-GELU -> softmax over the next byte (256)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/lm/kernels.h"
#include "common/status.h"
#include "zero/parameters.h"

namespace zpp::lm {

inline constexpr int kByteValues = 256;

struct LmShape {
  int context = 16;  // bytes that the next one is predicted from
  int embed = 32;    // features per byte
  int hidden = 512;
  int layers = 2;       // hidden ones, at least 1
  bool in_out = false;  // dense weights stored (in, out) instead of (out, in)

  bool operator==(const LmShape&) const = default;

  // Layer 0 .. layers - 1 are the hidden ones, layer `layers` is the softmax's.
  DenseShape Layer(int layer) const;
  int64_t elems() const;  // of all parameters
};

// "tiny" (29 K parameters), "small" (665 K), "20m" (21.5 M).
Result<LmShape> NamedShape(std::string_view name);
Status CheckShape(const LmShape& shape);

// Unit 0 is the embedding, unit 1 + i layer i. Parameter 0 is the embedding; layer i has its
// weights as parameter 1 + 2 i and its bias, one-dimensional, as 2 + 2 i.
std::vector<ParamSpec> ParametersOf(const LmShape& shape);
constexpr int kEmbeddingParam = 0;
constexpr int WeightParam(int layer) { return 1 + 2 * layer; }
constexpr int BiasParam(int layer) { return 2 + 2 * layer; }
constexpr int UnitOfLayer(int layer) { return 1 + layer; }
int64_t ElemsOf(const ParamSpec& param);

// The parameter's values at the start: the same bits on every machine, whatever the world and the
// layout (a transposed weight matrix holds the same numbers).
void InitialWeights(const LmShape& shape, uint64_t seed, int param, std::span<float> out);

}  // namespace zpp::lm
