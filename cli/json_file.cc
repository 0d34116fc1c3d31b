#include "cli/json_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace zpp::cli {
namespace {

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

Status CannotWrite(const std::string& path, const std::string& why) {
  return {StatusCode::kNotFound, "cannot write " + path + ": " + why};
}

bool WriteAll(FILE* file, const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fflush(file) == 0 && written;
}

}  // namespace

Status CheckWritable(const std::string& path) {
  if (path == "-") return {};
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return CannotWrite(path, "it is a folder");
  if (access(FolderOf(path).c_str(), W_OK) != 0) {
    return CannotWrite(path, "folder " + FolderOf(path) + ": " + std::strerror(errno));
  }
  return {};
}

Status WriteJson(const std::string& path, const nlohmann::json& value) {
  using Handler = nlohmann::json::error_handler_t;
  const std::string text = value.dump(2, ' ', false, Handler::replace) + "\n";
  if (path == "-") {
    return WriteAll(stdout, text) ? Status() : CannotWrite("standard output", std::strerror(errno));
  }
  ZPP_RETURN_IF_ERROR(CheckWritable(path));
  const std::string aside = path + ".part" + std::to_string(getpid());
  FILE* file = std::fopen(aside.c_str(), "w");
  if (file == nullptr) return CannotWrite(aside, std::strerror(errno));
  const bool written = WriteAll(file, text);
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed || std::rename(aside.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(aside.c_str());
    return CannotWrite(path, why);
  }
  return {};
}

}  // namespace zpp::cli
