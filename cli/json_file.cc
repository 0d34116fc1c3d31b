#include "cli/json_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "common/file.h"

namespace zpp::cli {
namespace {

bool WriteAll(FILE* file, const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fflush(file) == 0 && written;
}

// /dev/null, a terminal, a pipe: nothing to keep whole, and nothing that may be renamed over.
bool IsStream(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

Status WriteStream(const std::string& path, const std::string& text) {
  FILE* file = path == "-" ? stdout : std::fopen(path.c_str(), "w");
  const bool written = file != nullptr && WriteAll(file, text);
  const std::string why = std::strerror(errno);
  const bool closed = file == nullptr || file == stdout || std::fclose(file) == 0;
  if (written && closed) return {};
  return {StatusCode::kNotFound,
          "cannot write " + (path == "-" ? "standard output" : "'" + path + "'") + ": " + why};
}

}  // namespace

Status CheckJsonPath(const std::string& path) {
  return path == "-" || IsStream(path) ? Status() : CheckWritable(path);
}

Status WriteJson(const std::string& path, const nlohmann::json& value) {
  using Handler = nlohmann::json::error_handler_t;
  const std::string text = value.dump(2, ' ', false, Handler::replace) + "\n";
  if (path == "-" || IsStream(path)) return WriteStream(path, text);
  ZPP_ASSIGN_OR_RETURN(AsideFile file, AsideFile::Create(path));
  ZPP_RETURN_IF_ERROR(file.WriteAt(0, std::as_bytes(std::span<const char>(text))));
  return file.Commit();
}

}  // namespace zpp::cli
