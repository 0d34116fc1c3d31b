#include "collectives/exec/codec_task.h"

namespace zpp {

namespace {

ReduceArgs ReductionOf(const CodecTask& task) {
  return {.in = task.in,
          .elems = task.elems,
          .divisor = task.divisor,
          .out_spec = task.out_spec,
          .noise = task.noise,
          .stores = task.stores};
}

}  // namespace

int64_t CodecTask::work_bytes() const {
  int64_t bytes = static_cast<int64_t>(out.size());
  for (const Operand& operand : in) bytes += static_cast<int64_t>(operand.payload.size());
  return bytes;
}

Status RunTask(const CodecTask& task, ErrorStats* stats) {
  if (task.header != nullptr) {
    WriteWireHeader({.spec = task.out_spec, .elems = task.elems},
                    {task.header, static_cast<size_t>(kWireHeader_bytes)});
  }
  if (task.residual != nullptr) {
    return task.residual->Reduce(ReductionOf(task), task.first_residual, task.out, stats);
  }
  const Operand& first = task.in.front();
  switch (task.kind) {
    case CodecTask::Kind::kCopy:
      CopyBytes(first.payload, task.out.data(), task.stores);
      return {};
    case CodecTask::Kind::kEncode:
      return Encode(task.out_spec, {first.spec.plain, first.payload.data(), task.elems}, task.out,
                    task.noise, stats);
    case CodecTask::Kind::kDecode:
      return Decode(first.spec, first.payload, {task.out_spec.plain, task.out.data(), task.elems},
                    task.stores);
    case CodecTask::Kind::kReduce:
      return ReduceRecode(ReductionOf(task), task.out,
                          task.out_spec.compressed() ? stats : nullptr);
  }
  return {};
}

}  // namespace zpp
