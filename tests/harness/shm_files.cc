#include "tests/harness/shm_files.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace zpp::test {
namespace {
constexpr char kPrefix[] = "/dev/shm/ucx_shm_posix_";
}

std::vector<std::string> ShmFilesOf(pid_t pid) {
  std::vector<std::string> paths;
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t at = line.find(kPrefix);
    if (at == std::string::npos) continue;
    std::string path = line.substr(at, line.find(' ', at) - at);
    if (std::ranges::find(paths, path) == paths.end()) paths.push_back(std::move(path));
  }
  return paths;
}

void RemoveShmFiles(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) unlink(path.c_str());
}

std::vector<std::string> AllShmFiles() {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    if (entry.path().string().starts_with(kPrefix)) paths.push_back(entry.path().string());
  }
  return paths;
}

}  // namespace zpp::test
