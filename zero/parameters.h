// The trainer's parameter tensors, as the engine is told of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/status.h"

namespace zpp {

struct ParamSpec {
  std::string name;            // unique, not empty
  std::vector<int64_t> shape;  // row-major, (out, in) for a matrix; a dimension may be 0
  // What is gathered and freed together in stage 3, in the order of the forward pass: 0, 1, ...
  int unit = 0;
  bool trainable = true;
  std::optional<DType> dtype =
      {};  // of the weights the trainer computes with; absent: the config's
  // false: neither its gradients nor its weights are ever compressed. One-dimensional parameters
  // are not either, unless zero_pp.compress_1d.
  bool compress = true;
  // false on all but one of the ranks of EngineOptions::norm_group that hold a copy of it.
  bool counts_in_norm = true;

  int64_t elems() const;
  // Elements that follow each other along the input dimensions: a quantization block stays inside.
  int64_t row_elems() const;
};

// Names unique and not empty, dimensions from 0 with a product below 2^48, units from 0 without a
// gap, types fp32, fp16 or bf16: else kInvalidArgument with the parameter's name.
Status CheckParameters(std::span<const ParamSpec> params);

// "w (512, 256)": for messages.
std::string ToString(const ParamSpec& param);

}  // namespace zpp
