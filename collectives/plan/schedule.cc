// The order in which every rank runs the stages of all chunks.
#include <algorithm>

#include "collectives/plan/plan.h"

namespace zpp {
namespace {

// First tick of each chunk: one after the other, and not before its lane is free again.
std::vector<int64_t> StartTicks(const Pipeline& pipeline, int64_t ticks_per_chunk) {
  std::vector<int64_t> start(static_cast<size_t>(pipeline.chunks), 0);
  const size_t lanes = static_cast<size_t>(pipeline.lanes);
  for (size_t c = 1; c < start.size(); ++c) {
    start[c] = start[c - 1] + 1;
    if (c >= lanes) start[c] = std::max(start[c], start[c - lanes] + ticks_per_chunk);
  }
  return start;
}

void RunStage(int chunk, int stage, int stages, std::vector<Event>* out) {
  if (stage > 0) out->push_back({Event::kWait, chunk, stage - 1});
  out->push_back({Event::kBefore, chunk, stage});
  out->push_back({Event::kStart, chunk, stage});
  out->push_back({Event::kDuring, chunk, stage});
  if (stage == stages - 1) out->push_back({Event::kWait, chunk, stage});
}

}  // namespace

std::vector<Event> Events(int stages, const Pipeline& pipeline) {
  std::vector<Event> out;
  if (stages <= 0 || pipeline.chunks <= 0) return out;
  const int depth = std::max(1, pipeline.depth);
  const Pipeline sane = {pipeline.chunks, depth, std::max(1, pipeline.lanes)};
  const int64_t ticks = int64_t{depth} * (stages - 1) + 1;  // that a chunk lives
  const std::vector<int64_t> start = StartTicks(sane, ticks);
  out.reserve(static_cast<size_t>(pipeline.chunks) * static_cast<size_t>(stages) * 4);
  int first = 0;  // oldest chunk that is still alive
  for (int64_t tick = 0; first < pipeline.chunks; ++tick) {
    for (int c = first; c < pipeline.chunks && start[static_cast<size_t>(c)] <= tick; ++c) {
      const int64_t age = tick - start[static_cast<size_t>(c)];
      if (age % depth == 0) RunStage(c, static_cast<int>(age / depth), stages, &out);
    }
    while (first < pipeline.chunks && tick - start[static_cast<size_t>(first)] >= ticks - 1) {
      ++first;
    }
  }
  return out;
}

}  // namespace zpp
