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

TEST(CodecKernels, StreamedEncodeWritesTheSameBytes) {
  constexpr int32_t kBlocks[] = {32, 128, 2048};
  const NoiseKey noise{.seed = 7, .step = 3, .first_elem = 500};
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    for (int64_t elems : Lengths(spec.block_elems)) {
      const std::vector<float> x = Make(Pattern::kHuge, elems, 3);
      const PayloadLayout layout = LayoutOf(spec, elems);
      const size_t codes_bytes = static_cast<size_t>(layout.codes_bytes);
      for (const CodecKernels* kernels : AllKernels()) {
        std::vector<std::byte> codes[2];
        std::vector<std::byte> scales[2];
        for (size_t misaligned : {0, 1, 2, 16, 32, 60}) {
          for (bool stream : {false, true}) {
            Guarded out(codes_bytes, misaligned);
            scales[stream].assign(static_cast<size_t>(layout.scales_bytes), std::byte{0});
            kernels->encode(spec, {DType::kF32, x.data(), elems},
                            {scales[stream].data(), out.data()}, noise, stream);
            ASSERT_TRUE(out.intact()) << kernels->name << " " << ToString(spec) << " n=" << elems;
            codes[stream] = out.copy();
          }
          ASSERT_TRUE(codes[0] == codes[1] && scales[0] == scales[1])
              << kernels->name << " " << ToString(spec) << " n=" << elems << " off=" << misaligned;
        }
      }
    }
  }
}

// Vectors from memory are encoded in short batches; their bytes are those of the scalar codec.
TEST(CodecKernels, LargeVectorsAreEncodedToTheSameBytes) {
  constexpr int64_t kElems = (int64_t{1} << 18) + 1000;  // 1 MiB of fp32 and a tail
  constexpr int32_t kBlocks[] = {32, 128, 1024, 2048};
  const std::vector<float> x = Make(Pattern::kNonfinite, kElems, 11);
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    if (spec.rounding == Rounding::kStochastic && spec.block_elems != 128) continue;
    std::vector<std::byte> expected;
    {
      const WithTarget scalar("scalar");
      expected = EncodeF32(spec, x);
    }
    for (std::string_view target : CodecTargets()) {
      const WithTarget use(target);
      ASSERT_TRUE(EncodeF32(spec, x) == expected) << target << " " << ToString(spec);
    }
  }
}

TEST(CodecKernels, StreamCopiesEveryLengthToEveryPlace) {
  std::vector<std::byte> from(300);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (const CodecKernels* kernels : AllKernels()) {
    for (size_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 200, 299}) {
      for (size_t misaligned = 0; misaligned < 64; ++misaligned) {
        Guarded out(bytes, misaligned);
        kernels->stream(from.data() + 1, static_cast<int64_t>(bytes), out.data());
        ASSERT_TRUE(out.intact()) << kernels->name << " " << bytes << " off=" << misaligned;
        ASSERT_TRUE(std::equal(from.begin() + 1, from.begin() + 1 + static_cast<int64_t>(bytes),
                               out.copy().begin()))
            << kernels->name << " " << bytes << " off=" << misaligned;
      }
    }
  }
}

TEST(CodecKernels, CopyBytesCopiesWhateverTheHint) {
  std::vector<std::byte> from(70'001);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 13 + 5);
  for (const StoreHint stores : {StoreHint::kAuto, StoreHint::kStream}) {
    CopyBytes({}, nullptr, stores);
    for (const size_t bytes : {1, 63, 4097, 70'000}) {
      for (const size_t misaligned : {0, 1, 17}) {
        Guarded out(bytes, misaligned);
        CopyBytes(std::span<const std::byte>(from).subspan(1, bytes), out.data(), stores);
        ASSERT_TRUE(out.intact()) << bytes << " off=" << misaligned;
        ASSERT_TRUE(std::equal(from.begin() + 1, from.begin() + 1 + static_cast<int64_t>(bytes),
                               out.copy().begin()))
            << bytes << " off=" << misaligned;
      }
    }
  }
}

// The hint reaches the kernels through the public calls, from one element on, whatever is decoded
// or summed into whichever type.
TEST(CodecKernels, StoreHintChangesNoByte) {
  const QuantSpec int8 = QuantSpec::Int8(), int4 = QuantSpec::Int4(Code::kSqrt), plain;
  for (int64_t elems : {1, 255, 256, 5000}) {
    const std::vector<float> x = Make(Pattern::kNormal, elems, 7);
    const auto a = EncodeF32(int8, x), b = EncodeF32(int4, x), c = EncodeF32(plain, x);
    const std::vector<std::vector<Operand>> sums = {{{int8, a}, {int8, a}},
                                                    {{int4, b}},
                                                    {{int8, a}, {int4, b}, {plain, c}},
                                                    {{plain, c}, {plain, c}}};
    for (const std::vector<Operand>& operands : sums) {
      for (DType to : kDTypes) {
        ReduceArgs args{.in = operands,
                        .elems = elems,
                        .divisor = static_cast<float>(operands.size()),
                        .out_spec = QuantSpec::None(to),
                        .noise = {}};
        const size_t bytes = static_cast<size_t>(elems * SizeOf(to));
        Guarded expected(bytes, 0), out(bytes, 2);
        ASSERT_TRUE(ReduceRecode(args, expected.span()).ok());
        args.stores = StoreHint::kStream;
        ASSERT_TRUE(ReduceRecode(args, out.span()).ok());
        EXPECT_TRUE(out.intact() && out.copy() == expected.copy())
            << elems << " " << operands.size() << " to " << DTypeName(to);
      }
    }
  }
}

}  // namespace
}  // namespace zpp::testing
