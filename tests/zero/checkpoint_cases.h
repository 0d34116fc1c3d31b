// Tensors whose bytes tell name, step and index, spread over ranks at random; and worlds that save
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "common/status.h"
#include "tests/collectives/collective_cases.h"
#include "zero/checkpoint.h"

namespace zpp::test {

// A folder of its own, removed with everything in it.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct TensorCase {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
  int64_t elems() const;
};

// All types; no element, one, odd numbers; names that need care; one of several checksum chunks.
std::vector<TensorCase> ManyTensors();
std::vector<TensorCase> FewTensors();  // some 100 bytes

// Bytes of elements first ... first + elems.
std::vector<std::byte> ValuesOf(const TensorCase& tensor, int64_t first, int64_t elems,
                                int64_t step);

// What one rank owns: runs cut and dealt at random from `seed`, the same on all ranks. Several runs
// of a tensor may be one rank's, some ranks may own nothing.
struct OwnedPieces {
  std::vector<std::vector<std::byte>> storage;
  std::vector<StatePiece> pieces;
};
OwnedPieces DealPieces(const std::vector<TensorCase>& tensors, int rank, int world, int64_t step,
                       uint64_t seed = 1);

CheckpointMeta MetaOf(const std::vector<TensorCase>& tensors, int64_t step);

// Saves from `world` threads. All ranks must return the same, which is returned.
Status SaveFrom(int world, const std::string& dir, const std::vector<TensorCase>& tensors,
                int64_t step, const SaveOptions& options = {});
// The same with what each rank does given.
using SaveBody = std::function<Status(Communicator&)>;
Status SaveWith(int world, const SaveBody& body);

// Open, every byte of every tensor, Verify, and the meta of `step`.
Status CheckCheckpoint(const std::string& path, const std::vector<TensorCase>& tensors,
                       int64_t step);

std::string ReadText(const std::string& path);
void WriteText(const std::string& path, const std::string& text);
// All names in a folder, sorted.
std::vector<std::string> NamesIn(const std::string& folder);

}  // namespace zpp::test
