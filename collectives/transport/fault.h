// A transport that misbehaves on purpose, for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "collectives/transport/transport.h"

namespace zpp {

enum class FaultKind : uint8_t {
  kNone,
  kDrop,      // the message never leaves; its sender does not notice
  kDelay,     // it leaves `delay_s` later
  kTruncate,  // only its first half leaves
  kFlipBit,   // one bit, drawn from the seed, is wrong; an empty message passes
  kStall,     // it and all later ones stay for ever: a rank that hangs
  kDie,       // the rank is gone before it sends it
};

struct Fault {
  FaultKind kind = FaultKind::kNone;
  int64_t nth_message = 0;  // which of this rank's sends, counted from 0
  double delay_s = 0;
  uint64_t seed = 0;
  // How to die; absent: the inner transport is destroyed without Shutdown() and every later call
  // returns kAborted.
  std::function<void()> die = {};
};

std::unique_ptr<Transport> MakeFaulty(std::unique_ptr<Transport> inner, const Fault& fault);

}  // namespace zpp
