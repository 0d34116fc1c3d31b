// Weights as one .safetensors file, for everyone else's tools.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "common/dtype.h"
#include "common/status.h"
#include "quant/codec.h"

namespace zpp {

struct ExportTensor {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::kBF16;
};

struct ExportOptions {
  std::map<std::string, std::string> metadata = {{"format", "pt"}};  // the file's __metadata__
  double patience_s = 1800;  // how long the other ranks wait for rank 0's disk
};

// Fills `out` with tensor number `index`, whole, on rank 0. Called on every rank for one tensor
// after the other, so that it may be collective (a gather); `out` is scratch on the other ranks.
using ExportSource = std::function<Status(size_t index, Vec out)>;

// Collective; all ranks return the same. Rank 0 writes the file beside its place and renames it
// when it is whole: on an error one that was there stays. Every rank holds one tensor at a time.
// `tensors` are the same on all ranks. Errors as SaveCheckpoint()'s, and the source's.
Status ExportSafetensors(Communicator& comm, const std::string& path,
                         std::span<const ExportTensor> tensors, const ExportSource& source,
                         const ExportOptions& options = {});

}  // namespace zpp
