// The folder of checkpoints: names, what is whole in it, and how a new one appears at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"

namespace zpp::internal {

inline constexpr const char* kManifestName = "manifest.json";

std::string StepName(int64_t step);                         // "step-00000005"
std::optional<int64_t> StepOf(const std::string& name);     // of such a name only
std::string ShardName(int rank);                            // "rank-00003.safetensors"
std::string TempName(int64_t step, const std::string& id);  // ".step-00000005.tmp-ID"
std::vector<std::pair<int64_t, std::string>> ListSteps(const std::string& dir);  // oldest first

// The checkpoint that `path` means: itself, or what it holds. kNotFound in one sentence.
Result<std::string> FindCheckpoint(const std::string& path);

// One save, on the rank that leads. What has not been published goes away with this object.
class SaveFolder {
 public:
  // Makes `dir` if it must, keeps other jobs out of it, removes what killed ones left, and makes
  // the folder to write in.
  static Result<SaveFolder> Begin(const std::string& dir, int64_t step, const std::string& id);
  SaveFolder(SaveFolder&& other) noexcept;
  SaveFolder& operator=(SaveFolder&& other) noexcept = delete;
  ~SaveFolder();

  // All files are written and synced but the manifest: writes it, gives the folder its name, points
  // `latest` to it, and removes the oldest checkpoints beyond `keep_last` (0: none).
  Status Publish(const std::string& manifest_text, int keep_last);

 private:
  SaveFolder() = default;

  std::string dir_, temp_, id_;
  int64_t step_ = 0;
  int lock_ = -1;  // `dir`, locked
};

}  // namespace zpp::internal
