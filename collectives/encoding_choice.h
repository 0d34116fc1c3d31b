// From what the caller allows to what each hop carries. Pure: all ranks choose alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/plan/plan.h"
#include "collectives/policy.h"
#include "topology/topology.h"

namespace zpp {

struct ChoiceArgs {
  const CollectivePolicy* policy = nullptr;  // valid
  const Topology* topology = nullptr;
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kF32;
  int64_t elems = 0;  // of the whole vector
};

struct EncodingChoice {
  std::vector<QuantSpec> hop;  // one per tier
  QuantSpec gather;
  bool flat = false;
  bool one_shot = false;
  bool compressed = false;  // any of them
  std::string why;  // for people: what the size, the links or the error bound changed; may be empty
};

EncodingChoice ChooseEncodings(const ChoiceArgs& args);

// Vectors of fewer bytes are not compressed when the links are not known.
inline constexpr int64_t kDefaultMinCompress_bytes = 64 * 1024;

}  // namespace zpp
