// One call of the codec: the smallest piece of a rank's own work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/status.h"
#include "quant/codec.h"
#include "quant/error_feedback.h"

namespace zpp {

struct CodecTask {
  enum class Kind : uint8_t { kCopy, kEncode, kDecode, kReduce };
  Kind kind = Kind::kCopy;
  uint32_t op = 0;  // tasks of one op are independent; an op may need what the one before wrote
  QuantSpec out_spec;
  std::byte* header = nullptr;  // where the wire header goes; null when the output is plain
  std::span<std::byte> out;     // payload or values
  int64_t elems = 0;
  std::span<const Operand> in;  // one for all but kReduce
  float divisor = 1;
  NoiseKey noise;
  StoreHint stores = StoreHint::kAuto;  // of plain values
  // Of the encoded part, whose elements begin at first_residual in it. Null: none is kept.
  ErrorFeedback* residual = nullptr;
  int64_t first_residual = 0;

  // Bytes read and written: what decides how often to stop for the transport.
  int64_t work_bytes() const;
};

// `stats` (may be null) gets the error of what was encoded.
Status RunTask(const CodecTask& task, ErrorStats* stats);

}  // namespace zpp
