#include "cli/lm/text.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>

#include "common/hash.h"

namespace zpp::lm {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHoldOutEvery = 20;

Status CannotRead(const std::string& path, const std::string& why) {
  return {StatusCode::kNotFound, "cannot read " + path + ": " + why};
}

// What one file adds to `bytes`; false and nothing added when it is not text.
Result<bool> AppendFile(const std::string& path, std::vector<uint8_t>* bytes) {
  struct Closer {
    void operator()(FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<FILE, Closer> file(std::fopen(path.c_str(), "rb"));
  if (!file) return CannotRead(path, std::strerror(errno));
  const size_t before = bytes->size();
  uint8_t piece[1 << 16];
  size_t got = 0;
  while ((got = std::fread(piece, 1, sizeof piece, file.get())) > 0) {
    bytes->insert(bytes->end(), piece, piece + got);
    if (static_cast<int64_t>(bytes->size()) > kMaxTextBytes) {
      return InvalidArgument("more than " + std::to_string(kMaxTextBytes >> 20) +
                             " MiB of text, reached with " + path + ": give a part of it");
    }
  }
  if (std::ferror(file.get())) return CannotRead(path, std::strerror(errno));
  if (std::find(bytes->begin() + static_cast<int64_t>(before), bytes->end(), 0) == bytes->end()) {
    return true;
  }
  bytes->resize(before);
  return false;
}

bool Hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// Regular files below `folder`, sorted by path.
Result<std::vector<std::string>> FilesBelow(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator entries(folder, error);
  for (const fs::recursive_directory_iterator end; !error && entries != end;
       entries.increment(error)) {
    const fs::directory_entry& entry = *entries;
    const fs::file_status status = entry.symlink_status(error);
    if (error) break;
    if (Hidden(entry.path())) {
      if (fs::is_directory(status)) entries.disable_recursion_pending();
    } else if (fs::is_regular_file(status)) {
      files.push_back(entry.path().string());
    }
  }
  if (error) return CannotRead(folder, error.message());
  std::sort(files.begin(), files.end());
  return files;
}

// The last twentieth of the training part becomes the held-out part.
void HoldOutTheEnd(Text* text) {
  const auto held_out = static_cast<int64_t>(text->train.size()) / kHoldOutEvery;
  text->held_out.assign(text->train.end() - held_out, text->train.end());
  text->train.resize(text->train.size() - static_cast<size_t>(held_out));
}

Status ReadFolder(const std::string& folder, Text* text) {
  ZPP_ASSIGN_OR_RETURN(const std::vector<std::string> files, FilesBelow(folder));
  std::vector<size_t> ends;  // of the text files, one after the other
  std::vector<uint8_t> all;
  for (const std::string& file : files) {
    ZPP_ASSIGN_OR_RETURN(const bool is_text, AppendFile(file, &all));
    if (is_text) ends.push_back(all.size());
  }
  text->files = static_cast<int64_t>(ends.size());
  if (text->files < kHoldOutEvery) {
    text->train = std::move(all);
    HoldOutTheEnd(text);
    return {};
  }
  size_t start = 0;
  for (size_t i = 0; i < ends.size(); start = ends[i++]) {
    const bool held_out = i % kHoldOutEvery == kHoldOutEvery - 1;
    std::vector<uint8_t>& part = held_out ? text->held_out : text->train;
    part.insert(part.end(), all.begin() + static_cast<int64_t>(start),
                all.begin() + static_cast<int64_t>(ends[i]));
    if (held_out) ++text->held_out_files;
  }
  return {};
}

Status ReadFile(const std::string& path, Text* text) {
  ZPP_ASSIGN_OR_RETURN(const bool is_text, AppendFile(path, &text->train));
  if (!is_text) return InvalidArgument(path + " is no text: it holds a zero byte");
  text->files = 1;
  HoldOutTheEnd(text);
  return {};
}

}  // namespace

uint64_t Text::Fingerprint() const {
  // The lengths keep the parts apart.
  Hash hash;
  for (const auto* part : {&train, &held_out}) {
    hash.Add(static_cast<uint64_t>(part->size()));
    hash.Add(std::as_bytes(std::span(*part)));
  }
  return hash.value();
}

Result<Text> ReadText(const std::string& path) {
  Text text;
  text.source = path;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return CannotRead(path, "no such file or folder");
  if (error) return CannotRead(path, error.message());
  if (fs::is_directory(status)) {
    ZPP_RETURN_IF_ERROR(ReadFolder(path, &text));
  } else if (fs::is_regular_file(status)) {
    ZPP_RETURN_IF_ERROR(ReadFile(path, &text));
  } else {
    return InvalidArgument(path + " is neither a file nor a folder");
  }
  if (text.train.empty()) return InvalidArgument(path + " holds no text");
  return text;
}

Result<std::string> DefaultTextFolder() {
  const char* const root = "/usr/include/c++";
  std::error_code error;
  std::pair<int, std::string> newest{-1, ""};
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const int version = std::atoi(it->path().filename().c_str());
    newest = std::max(newest, {version, it->path().string()});
  }
  if (!newest.second.empty()) return newest.second;
  return Status(StatusCode::kNotFound,
                std::string("no C++ headers in ") + root + ": name a text with --data");
}

Status CheckLongEnough(const Text& text, int context) {
  const auto check = [&](const char* part, size_t bytes) -> Status {
    if (static_cast<int64_t>(bytes) > context) return {};
    return InvalidArgument(text.source + ": the " + part + " part has " + std::to_string(bytes) +
                           " bytes, shorter than the window of " + std::to_string(context) +
                           " and the byte that follows it");
  };
  ZPP_RETURN_IF_ERROR(check("training", text.train.size()));
  return check("held-out", text.held_out.size());
}

}  // namespace zpp::lm
