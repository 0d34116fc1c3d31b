// The text that a language model learns from: read from files, a part of it held out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"

namespace zpp::lm {

struct Text {
  std::vector<uint8_t> train;
  std::vector<uint8_t> held_out;  // for the validation loss
  int64_t files = 0, held_out_files = 0;
  std::string source;  // the file or folder, as it was given

  // The same for the same bytes, wherever they lie.
  uint64_t Fingerprint() const;
};

// A folder: all text files below it, sorted by path, every 20th held out; files and folders whose
// names begin with a dot, links and files with a zero byte are left out. A single file, or fewer
// than 20: the last twentieth of the bytes is held out. At most kMaxTextBytes. kNotFound: cannot be
// opened or read. kInvalidArgument: no text. Each message names the file or folder.
Result<Text> ReadText(const std::string& path);
inline constexpr int64_t kMaxTextBytes = int64_t{1} << 30;

// The headers of the C++ standard library on this machine, the newest version's. kNotFound.
Result<std::string> DefaultTextFolder();

// Both parts hold a window of `context` bytes and one to predict: else kInvalidArgument.
Status CheckLongEnough(const Text& text, int context);

// Contexts and the bytes that follow them. Row-major (rows, context).
struct Batch {
  int context = 0;
  std::vector<uint8_t> inputs;
  std::vector<uint8_t> targets;
  int64_t rows() const { return static_cast<int64_t>(targets.size()); }
};

// Rows first .. first + rows of step `step`'s global batch: each is a function of the seed, the
// step and its index alone, so any number of ranks sees the same batch.
struct BatchKey {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
};
Batch TrainingBatch(const Text& text, int context, const BatchKey& key);

// The validation rows are fixed: 16384 places of the held-out part, or all when it has fewer.
int64_t ValidationRows(const Text& text, int context);
Batch ValidationBatch(const Text& text, int context, int64_t first_row, int64_t rows);

}  // namespace zpp::lm
