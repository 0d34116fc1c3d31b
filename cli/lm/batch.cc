#include <cstring>

#include "cli/lm/text.h"
#include "quant/noise.h"

namespace zpp::lm {
namespace {

constexpr int64_t kValidationRows = 16384;
constexpr uint64_t kValidationSeed = 0x76616c6964617465;  // "validate"

uint64_t Random(uint64_t seed, int64_t step, int64_t row) {
  const PhiloxBlock block = Philox(static_cast<uint64_t>(row), static_cast<uint64_t>(step), seed);
  return (uint64_t{block.word[1]} << 32) | block.word[0];
}

// Places where a window and the byte after it fit.
int64_t Places(const std::vector<uint8_t>& bytes, int context) {
  return static_cast<int64_t>(bytes.size()) - context;
}

void SetRow(const std::vector<uint8_t>& bytes, int64_t place, int64_t row, Batch* batch) {
  std::memcpy(batch->inputs.data() + row * batch->context, bytes.data() + place,
              static_cast<size_t>(batch->context));
  batch->targets[static_cast<size_t>(row)] = bytes[static_cast<size_t>(place + batch->context)];
}

Batch EmptyBatch(int context, int64_t rows) {
  Batch batch;
  batch.context = context;
  batch.inputs.resize(static_cast<size_t>(rows * context));
  batch.targets.resize(static_cast<size_t>(rows));
  return batch;
}

}  // namespace

Batch TrainingBatch(const Text& text, int context, const BatchKey& key) {
  const auto places = static_cast<uint64_t>(Places(text.train, context));
  Batch batch = EmptyBatch(context, key.rows);
  for (int64_t row = 0; row < key.rows; ++row) {
    const uint64_t place = Random(key.seed, key.step, key.first_row + row) % places;
    SetRow(text.train, static_cast<int64_t>(place), row, &batch);
  }
  return batch;
}

int64_t ValidationRows(const Text& text, int context) {
  return std::min(kValidationRows, Places(text.held_out, context));
}

Batch ValidationBatch(const Text& text, int context, int64_t first_row, int64_t rows) {
  const int64_t places = Places(text.held_out, context);
  Batch batch = EmptyBatch(context, rows);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t index = first_row + row;
    const uint64_t drawn = Random(kValidationSeed, 0, index) % static_cast<uint64_t>(places);
    SetRow(text.held_out, places <= kValidationRows ? index : static_cast<int64_t>(drawn), row,
           &batch);
  }
  return batch;
}

}  // namespace zpp::lm
