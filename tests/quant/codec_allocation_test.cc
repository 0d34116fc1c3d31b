// Contract 8: nothing allocates.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "quant/error_feedback.h"
#include "tests/quant/codec_cases.h"

namespace {
std::atomic<int64_t> allocations{0};

void* CountedAllocate(size_t bytes) {
  ++allocations;
  if (void* data = std::malloc(bytes == 0 ? 1 : bytes)) return data;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(size_t bytes) { return CountedAllocate(bytes); }
void* operator new[](size_t bytes) { return CountedAllocate(bytes); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete[](void* data, size_t) noexcept { std::free(data); }

namespace zpp::testing {
namespace {

constexpr int64_t kElems = 5001;

// Vectors that all calls below work on.
struct Buffers {
  std::vector<float> values = Make(Pattern::kNormal, kElems, 1);
  std::vector<float> out = std::vector<float>(kElems);
  std::vector<std::byte> payload, recoded;
  ErrorStats stats;
};

void CallEverything(const QuantSpec& spec, Buffers& b, ErrorFeedback& feedback, bool* ok) {
  const ConstVec in{DType::kF32, b.values.data(), kElems};
  const Vec out{DType::kF16, b.out.data(), kElems};
  const Operand operands[] = {{spec, b.payload}, {spec, b.payload}};
  const ReduceArgs args{.in = operands, .elems = kElems, .out_spec = spec, .noise = {}};
  *ok = Encode(spec, in, b.payload).ok() && Encode(spec, in, b.payload, {}, &b.stats).ok() &&
        Decode(spec, b.payload, out).ok() && DecodeAccumulate(spec, b.payload, b.values).ok() &&
        ReduceRecode(args, b.recoded).ok() && ReduceRecode(args, b.recoded, &b.stats).ok() &&
        CheckPayload(spec, kElems, b.payload).ok() &&
        feedback.Encode(spec, 0, in, b.payload, {}, &b.stats).ok() &&
        feedback.Reduce(args, 0, b.recoded, &b.stats).ok();
}

TEST(CodecAllocation, NoCallAllocates) {
  constexpr int32_t kBlocks[] = {32, 2048};
  std::vector<QuantSpec> specs = AllSpecs(kBlocks);
  for (DType dtype : kDTypes) specs.push_back(QuantSpec::None(dtype));
  for (const QuantSpec& spec : specs) {
    for (std::string_view target : CodecTargets()) {
      const WithTarget use(target);
      Buffers buffers;
      buffers.payload.resize(static_cast<size_t>(PayloadBytes(spec, kElems)));
      buffers.recoded = buffers.payload;
      Result<ErrorFeedback> feedback = ErrorFeedback::Create(kElems, ResidualType::kInt8);
      ASSERT_TRUE(feedback.ok());
      bool ok = false;
      const int64_t before = allocations;
      CallEverything(spec, buffers, *feedback, &ok);
      const int64_t after = allocations;
      EXPECT_TRUE(ok) << ToString(spec);
      EXPECT_EQ(after, before) << ToString(spec) << " on " << target;
    }
  }
}

}  // namespace
}  // namespace zpp::testing
