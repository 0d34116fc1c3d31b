// Sharded checkpoints: every rank writes what it owns, and a world of any size reads it back.
//
//   DIR/latest                        "step-00000005"
//   DIR/step-00000005/manifest.json   what was saved, where each piece lies, checksums of all bytes
//   DIR/step-00000005/rank-00000.safetensors, rank-00001.safetensors, ...
//
// A checkpoint is written in DIR/.step-00000005.tmp-ID and renamed when it is whole and on the
// disk: whatever happens in between, older checkpoints stay as they are. DIR is one folder that
// every rank sees. The engine, or anything else with named tensors, is built on top.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "common/dtype.h"
#include "common/status.h"
#include "quant/codec.h"

namespace zpp {

// A run of elements of a named global tensor, flattened, that this rank owns. `data` is borrowed.
struct StatePiece {
  std::string name = {};            // UTF-8, not empty; '/' and spaces are fine
  std::vector<int64_t> shape = {};  // of the whole tensor; {} is one element
  int64_t first_elem = 0;
  DType dtype = DType::kF32;
  const void* data = nullptr;
  int64_t elems = 0;
  // The pieces of all ranks need not cover the tensor. Equal in all pieces of a tensor.
  bool partial = false;
};

// What belongs to all ranks. Rank 0's is saved; step and fingerprint must be equal on all.
struct CheckpointMeta {
  int64_t step = 0;
  std::string model_fingerprint = {};  // see ModelFingerprint()
  nlohmann::json state = {};           // the caller's: scaler, counters, topology, config
  std::string user = {};               // opaque bytes: data position, random state
};

struct SaveOptions {
  int keep_last = 0;  // step folders that are left afterwards, the new one included; 0: all
  // How long a rank waits for another one that is still writing. A rank that dies is noticed by the
  // communicator, much sooner.
  double patience_s = 1800;
};

// Collective; all ranks return the same. Saves dir/step-N, N = meta.step, in place of one that is
// there already. Costs one pass over the pieces, each rank writing its own, and an fsync.
// On an error nothing has changed in `dir`, and the sentence begins with the rank that failed:
//   kInvalidArgument   pieces that overlap, leave a hole, or disagree about a tensor
//   kMismatch          ranks that save different steps or models
//   kResourceExhausted the disk is full, or a file grew beyond a limit
//   kNotFound          `dir` is missing on a rank (rank 0 makes it) or is not writable
//   kUnavailable       another job is saving in `dir`
// What killed jobs left in `dir` is removed.
Status SaveCheckpoint(Communicator& comm, const std::string& dir, const CheckpointMeta& meta,
                      std::span<const StatePiece> pieces, const SaveOptions& options = {});

// Reads one checkpoint, of any number of writers. Local, not collective; each rank opens its own.
class CheckpointReader {
 public:
  // `path`: a folder of checkpoints, where `latest` says which, or a step folder itself. Verifies
  // the manifest, and that every shard is there, is of this very checkpoint and has its size. Reads
  // the manifest and the shards' headers. kNotFound: nothing there; kDataLoss: a file is missing,
  // truncated, changed or of another checkpoint; kUnimplemented: a newer format. Each names the
  // file.
  static Result<CheckpointReader> Open(const std::string& path);
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  const CheckpointMeta& meta() const;
  const std::string& folder() const;              // of this checkpoint: ".../step-00000005"
  int writers() const;                            // world size of the job that saved it
  const std::vector<std::string>& names() const;  // sorted

  bool Has(const std::string& name) const;
  // Of a tensor that is there; {} and kByte of one that is not.
  std::vector<int64_t> shape(const std::string& name) const;
  DType dtype(const std::string& name) const;

  // out = elements first_elem ... of the tensor, joined from its pieces. Bytes go straight to `out`
  // and their checksums are compared; for that up to 1 MiB more is read at each end of a piece.
  // Converts nothing: kInvalidArgument for another type, an unknown name, a range outside the
  // tensor or one that a partial tensor does not have. kDataLoss names the shard whose bytes are
  // wrong. Thread-safe.
  Status Read(const std::string& name, int64_t first_elem, Vec out) const;

  // Reads every byte of every shard and compares the checksums.
  Status Verify() const;

 private:
  class Impl;
  explicit CheckpointReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A model is the names and shapes of its parameters.
struct ModelTensor {
  std::string name;
  std::vector<int64_t> shape;
};

// Readable text, the same whatever the order of the tensors.
std::string ModelFingerprint(std::span<const ModelTensor> tensors);
// kInvalidArgument with the first tensor that differs and both shapes: "this checkpoint is of
// another model: 'w' is (3, 4) in it, (4, 4) here".
Status CheckSameModel(const std::string& saved_fingerprint, const std::string& own_fingerprint);

}  // namespace zpp
