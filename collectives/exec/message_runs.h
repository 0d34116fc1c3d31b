// How one plan message becomes transport messages. Sender and receiver must cut it alike though one
// may hold the parts back to back and the other scattered over user memory, so the cut depends on
// nothing but the parts.
#pragma once

#include <cstdint>

#include "collectives/exec/prepared_plan.h"
#include "collectives/plan/plan.h"

namespace zpp {

// Parts [first, first + count) of the message's span travel together.
struct PartRun {
  uint32_t first = 0;
  uint32_t count = 0;
};

// The run that begins at part `first`: all the rest when compressed (both sides hold it back to
// back); plain parts only as far as they are neighbours in the whole vector and whole chunks of it
// touch. `first` < span.count.
PartRun NextRun(const PreparedPlan& prepared, const Span& span, uint32_t first, int chunk);

}  // namespace zpp
