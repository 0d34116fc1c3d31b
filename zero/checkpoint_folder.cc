#include "zero/internal/checkpoint_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <utility>

#include "common/file.h"
#include "common/log.h"
#include "common/strict_json.h"

namespace zpp::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr const char* kLatestName = "latest";

std::string Numbered(const char* prefix, int width, int64_t number) {
  std::string digits = std::to_string(number);
  if (static_cast<int>(digits.size()) < width) {
    digits.insert(0, static_cast<size_t>(width) - digits.size(), '0');
  }
  return prefix + digits;
}

Status Cannot(const std::string& what, const std::string& path, int error) {
  const bool out = error == ENOSPC || error == EDQUOT || error == EIO || error == EMFILE ||
                   error == ENFILE || error == ENOMEM;
  return {out ? StatusCode::kResourceExhausted : StatusCode::kNotFound,
          "cannot " + what + " '" + path + "': " + std::strerror(error)};
}

// What killed jobs were writing or removing.
bool IsTemp(const std::string& name) {
  const bool folder = name.starts_with(".step-") && name.find(".tmp-") != name.npos;
  return folder || name.starts_with(std::string(kLatestName) + ".part");
}

void RemoveTemps(const std::string& dir) {
  std::error_code error;
  std::vector<fs::path> temps;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (IsTemp(it->path().filename())) temps.push_back(it->path());
  }
  for (const fs::path& temp : temps) fs::remove_all(temp, error);
}

Status SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Cannot("open", folder, errno);
  // File systems that cannot sync a folder are left to their own promises.
  const bool failed = fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP;
  const Status status = failed ? Cannot("sync", folder, errno) : Status();
  close(fd);
  return status;
}

Status WriteWhole(const std::string& path, const std::string& text) {
  ZPP_ASSIGN_OR_RETURN(AsideFile file, AsideFile::Create(path));
  ZPP_RETURN_IF_ERROR(file.WriteAt(0, std::as_bytes(std::span(text.data(), text.size()))));
  return file.Commit();
}

Status Rename(const std::string& from, const std::string& to) {
  return rename(from.c_str(), to.c_str()) == 0 ? Status() : Cannot("rename", from, errno);
}

// Two folders change names: in one instant where the file system can do that (all but NFS), else
// in three.
Status Exchange(const std::string& a, const std::string& b) {
  if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return {};
  const std::string aside = a + "-old";
  ZPP_RETURN_IF_ERROR(Rename(b, aside));
  const Status renamed = Rename(a, b);
  (void)Rename(aside, renamed.ok() ? a : b);
  return renamed;
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Removed as a temp folder is, so that one killed in between is never half a checkpoint.
void RemoveStep(const std::string& dir, int64_t step, const std::string& id) {
  const std::string folder = dir + "/" + StepName(step), temp = dir + "/" + TempName(step, id);
  std::error_code error;
  fs::rename(folder, temp, error);
  if (!error) fs::remove_all(temp, error);
  if (error) Log(LogLevel::kWarning, "cannot remove '" + folder + "': " + error.message());
}

void KeepLast(const std::string& dir, int64_t saved, int keep_last, const std::string& id) {
  auto steps = ListSteps(dir);
  std::erase_if(steps, [&](const auto& step) { return step.first == saved; });
  const size_t others = static_cast<size_t>(keep_last) - 1;
  for (size_t i = 0; i + others < steps.size(); ++i) RemoveStep(dir, steps[i].first, id);
}

// Nothing when there is no such file, or nothing in it.
std::string ReadLatest(const std::string& dir) {
  const auto file = InputFile::Open(dir + "/" + kLatestName);
  if (!file.ok() || file->size_bytes() > 64) return {};
  std::string text(static_cast<size_t>(file->size_bytes()), '\0');
  if (!file->ReadAt(0, std::as_writable_bytes(std::span(text.data(), text.size()))).ok()) return {};
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool HoldsManifest(const std::string& folder) { return Exists(folder + "/" + kManifestName); }

}  // namespace

std::string StepName(int64_t step) { return Numbered("step-", 8, step); }

std::string ShardName(int rank) { return Numbered("rank-", 5, rank) + ".safetensors"; }

std::string TempName(int64_t step, const std::string& id) {
  return "." + StepName(step) + ".tmp-" + id;
}

std::optional<int64_t> StepOf(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  const bool good = parsed.ec == std::errc() && parsed.ptr == end && StepName(step) == name;
  return good ? std::optional(step) : std::nullopt;
}

std::vector<std::pair<int64_t, std::string>> ListSteps(const std::string& dir) {
  std::vector<std::pair<int64_t, std::string>> steps;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    const auto step = StepOf(name);
    if (step && HoldsManifest(it->path())) steps.emplace_back(*step, name);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<std::string> FindCheckpoint(const std::string& path) {
  if (HoldsManifest(path)) return path;
  const std::string latest = ReadLatest(path);
  if (StepOf(latest) && Exists(path + "/" + latest)) return path + "/" + latest;
  // `latest` is missing, or a job was killed between removing a step and renaming its successor.
  const auto steps = ListSteps(path);
  if (!steps.empty()) return path + "/" + steps.back().second;
  std::error_code error;
  const bool there = fs::is_directory(path, error);
  return Status(StatusCode::kNotFound,
                there ? "'" + path + "' holds no checkpoint" : "there is no folder '" + path + "'");
}

Result<SaveFolder> SaveFolder::Begin(const std::string& dir, int64_t step, const std::string& id) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return Cannot("make folder", dir, error.value());
  SaveFolder folder;
  folder.lock_ = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder.lock_ < 0) return Cannot("open", dir, errno);
  // Where locks are not supported nobody can be kept out.
  if (flock(folder.lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return Status(StatusCode::kUnavailable, "another job is saving in '" + dir + "'");
  }
  RemoveTemps(dir);
  folder.dir_ = dir;
  folder.id_ = id;
  folder.step_ = step;
  const std::string temp = dir + "/" + TempName(step, id);
  if (!fs::create_directory(temp, error)) return Cannot("make folder", temp, error.value());
  folder.temp_ = temp;
  return folder;
}

SaveFolder::SaveFolder(SaveFolder&& other) noexcept
    : dir_(std::move(other.dir_)),
      temp_(std::exchange(other.temp_, {})),
      id_(std::move(other.id_)),
      step_(other.step_),
      lock_(std::exchange(other.lock_, -1)) {}

SaveFolder::~SaveFolder() {
  std::error_code error;
  if (!temp_.empty()) fs::remove_all(temp_, error);
  if (lock_ < 0) return;
  // Said aloud, because a child that was forked meanwhile would keep a closed one locked.
  (void)flock(lock_, LOCK_UN);
  close(lock_);
}

Status SaveFolder::Publish(const std::string& manifest_text, int keep_last) {
  ZPP_RETURN_IF_ERROR(WriteWhole(temp_ + "/" + kManifestName, manifest_text));
  ZPP_RETURN_IF_ERROR(SyncFolder(temp_));
  const std::string folder = dir_ + "/" + StepName(step_);
  const bool replaces = Exists(folder);
  ZPP_RETURN_IF_ERROR(replaces ? Exchange(temp_, folder) : Rename(temp_, folder));
  Status named = SyncFolder(dir_);
  if (named.ok()) named = WriteWhole(dir_ + "/" + kLatestName, StepName(step_) + "\n");
  // What is left under the temporary name, the new or the replaced one, goes with this object.
  if (!named.ok()) {
    (void)(replaces ? Exchange(temp_, folder) : Rename(folder, temp_));
    return named;
  }
  if (keep_last > 0) KeepLast(dir_, step_, keep_last, id_);
  return {};
}

}  // namespace zpp::internal
