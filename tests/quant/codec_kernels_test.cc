// Destinations larger than the caches are written by other stores. Called directly here, so that
// every length and alignment is seen and not only vectors of 64 MiB: the same bytes, and nothing
// beside them.
#include "quant/codec_kernels.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/quant/codec_cases.h"

namespace zpp::testing {
namespace {

std::vector<int64_t> Lengths(int64_t block_elems) {
  return {1, 31, block_elems - 1, block_elems, block_elems + 1, 3 * block_elems + 7, 4096};
}

PayloadIn PayloadOf(const QuantSpec& spec, const std::vector<std::byte>& bytes, int64_t elems) {
  const std::byte* codes = bytes.data() + LayoutOf(spec, elems).scales_bytes;
  return {bytes.data(), codes};
}

std::vector<const CodecKernels*> AllKernels() {
  std::vector<const CodecKernels*> all(SimdKernels().begin(), SimdKernels().end());
  all.push_back(&ScalarKernels());
  return all;
}

TEST(CodecKernels, StreamedDecodeWritesTheSameBytes) {
  constexpr int32_t kBlocks[] = {32, 128, 2048};
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    for (Pattern pattern : {Pattern::kNormal, Pattern::kNonfinite, Pattern::kHuge}) {
      for (int64_t elems : Lengths(spec.block_elems)) {
        const std::vector<std::byte> bytes = EncodeF32(spec, Make(pattern, elems, 3, DType::kF16));
        const PayloadIn in = PayloadOf(spec, bytes, elems);
        for (DType dtype : kDTypes) {
          const size_t out_bytes = static_cast<size_t>(elems * SizeOf(dtype));
          Guarded expected(out_bytes, 0);
          ScalarKernels().decode(spec, in, expected.out(dtype), false);
          for (const CodecKernels* kernels : AllKernels()) {
            for (size_t misaligned : {0, 1, 2, 16, 32, 60}) {
              Guarded out(out_bytes, misaligned);
              kernels->decode(spec, in, out.out(dtype), true);
              ASSERT_TRUE(out.intact() && out.copy() == expected.copy())
                  << kernels->name << " " << ToString(spec) << " to " << DTypeName(dtype)
                  << " n=" << elems << " off=" << misaligned;
            }
          }
        }
      }
    }
  }
}

// Random numbers of elements whose counters do not fit 32 bits, from any place within a group.
TEST(CodecKernels, NoiseFarIntoAVectorIsTheSame) {
  constexpr int32_t kBlocks[] = {32, 128};
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    if (spec.rounding != Rounding::kStochastic) continue;
    const std::vector<float> x = Make(Pattern::kNormal, 1000, 5);
    for (int bits : {31, 32, 35, 36, 40, 48, 63}) {
      for (uint64_t offset : {0, 1, 77, 500}) {
        // The run crosses the power of two.
        const NoiseKey noise{.seed = ~uint64_t{0},
                             .step = uint64_t{1} << 40,
                             .first_elem = (uint64_t{1} << bits) - offset};
        std::vector<std::byte> expected;
        {
          const WithTarget scalar("scalar");
          expected = EncodeF32(spec, x, noise);
        }
        for (std::string_view target : CodecTargets()) {
          const WithTarget use(target);
          ASSERT_TRUE(EncodeF32(spec, x, noise) == expected)
              << target << " " << ToString(spec) << " 2^" << bits << " - " << offset;
        }
      }
    }
  }
}

TEST(CodecKernels, StreamedSumsWriteTheSameBytes) {
  for (DType from : kDTypes) {
    for (int64_t elems : Lengths(128)) {
      const QuantSpec spec = QuantSpec::None(from);
      const auto a = EncodeF32(spec, Make(Pattern::kNonfinite, elems, 1, from));
      const auto b = EncodeF32(spec, Make(Pattern::kNormal, elems, 2, from));
      const SumOperand operands[] = {{spec, {nullptr, a.data()}}, {spec, {nullptr, b.data()}}};
      for (DType to : kDTypes) {
        const size_t out_bytes = static_cast<size_t>(elems * SizeOf(to));
        for (size_t count : {1, 2}) {
          const std::span<const SumOperand> in(operands, count);
          for (const CodecKernels* kernels : AllKernels()) {
            Guarded expected(out_bytes, 0);
            kernels->sum(in, 3.0f, expected.out(to), false);
            for (size_t misaligned : {0, 2, 16, 32, 60}) {
              Guarded out(out_bytes, misaligned);
              kernels->sum(in, 3.0f, out.out(to), true);
              ASSERT_TRUE(out.intact() && out.copy() == expected.copy())
                  << kernels->name << " " << DTypeName(from) << " to " << DTypeName(to)
                  << " n=" << elems << " off=" << misaligned;
            }
          }
        }
      }
    }
  }
}

// The hint reaches the kernels through the public calls, from one element on.
TEST(CodecKernels, StoreHintChangesNoByte) {
  const QuantSpec spec = QuantSpec::Int8();
  for (int64_t elems : {1, 255, 256, 5000}) {
    const std::vector<std::byte> payload = EncodeF32(spec, Make(Pattern::kNormal, elems, 7));
    const Operand operands[] = {{spec, payload}, {spec, payload}};
    std::vector<std::byte> values[2], sums[2];
    for (StoreHint stores : {StoreHint::kAuto, StoreHint::kStream}) {
      const size_t i = static_cast<size_t>(stores);
      values[i].resize(static_cast<size_t>(elems) * 4);
      sums[i].resize(static_cast<size_t>(elems) * 4);
      ASSERT_TRUE(Decode(spec, payload, {DType::kF32, values[i].data(), elems}, stores).ok());
      const ReduceArgs args{.in = operands,
                            .elems = elems,
                            .divisor = 2,
                            .out_spec = QuantSpec::None(),
                            .noise = {},
                            .stores = stores};
      ASSERT_TRUE(ReduceRecode(args, sums[i]).ok());
    }
    EXPECT_EQ(values[0], values[1]) << elems;
    EXPECT_EQ(sums[0], sums[1]) << elems;
    EXPECT_EQ(values[0], sums[0]) << "the mean of two equal operands, " << elems;
  }
}

}  // namespace
}  // namespace zpp::testing
