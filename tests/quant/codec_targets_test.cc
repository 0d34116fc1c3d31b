// Contracts 1, 5 and 8: every SIMD target writes the bytes of the scalar codec, at every length and
// alignment, and nothing beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/quant/codec_cases.h"

namespace zpp::testing {
namespace {

struct Case {
  QuantSpec spec;
  DType dtype;
  Pattern pattern;
  int64_t elems;
  size_t misaligned;
  std::string Describe() const {
    return ToString(spec) + " " + std::string(DTypeName(dtype)) + " " + Name(pattern) +
           " n=" + std::to_string(elems) + " off=" + std::to_string(misaligned);
  }
};

constexpr NoiseKey kNoise{.seed = 0x0123456789abcdef, .step = 7, .first_elem = 1000003};

struct Outcome {
  std::vector<std::byte> payload;
  std::vector<std::byte> decoded[3];
  std::vector<std::byte> accumulated;
  bool operator==(const Outcome&) const = default;
};

Outcome Run(const Case& c) {
  const std::vector<float> values = Make(c.pattern, c.elems, 17, c.dtype);
  Guarded in(c.dtype, values, c.misaligned);
  Guarded payload(static_cast<size_t>(PayloadBytes(c.spec, c.elems)), c.misaligned);
  EXPECT_TRUE(Encode(c.spec, in.vec(c.dtype), payload.span(), kNoise).ok());
  EXPECT_TRUE(in.intact() && payload.intact());
  EXPECT_TRUE(CheckPayload(c.spec, c.elems, payload.span()).ok());
  Outcome outcome{.payload = payload.copy(), .decoded = {}, .accumulated = {}};
  for (DType dtype : kDTypes) {
    Guarded out(static_cast<size_t>(c.elems * SizeOf(dtype)), c.misaligned);
    EXPECT_TRUE(Decode(c.spec, payload.span(), out.out(dtype)).ok());
    EXPECT_TRUE(out.intact());
    outcome.decoded[static_cast<int>(dtype)] = out.copy();
  }
  Guarded acc(DType::kF32, Make(Pattern::kNormal, c.elems, 3), c.misaligned / 4 * 4);
  const std::span<float> sums(reinterpret_cast<float*>(acc.data()), static_cast<size_t>(c.elems));
  EXPECT_TRUE(DecodeAccumulate(c.spec, payload.span(), sums).ok());
  EXPECT_TRUE(acc.intact());
  outcome.accumulated = acc.copy();
  EXPECT_EQ(payload.copy(), outcome.payload);
  return outcome;
}

void ExpectSameOnAllTargets(const Case& c) {
  Outcome expected;
  {
    const WithTarget scalar("scalar");
    expected = Run(c);
  }
  for (std::string_view target : CodecTargets()) {
    const WithTarget use(target);
    const Outcome actual = Run(c);
    EXPECT_TRUE(actual.payload == expected.payload) << target << " payload of " << c.Describe();
    for (DType dtype : kDTypes) {
      const int d = static_cast<int>(dtype);
      EXPECT_TRUE(actual.decoded[d] == expected.decoded[d])
          << target << " decoded to " << DTypeName(dtype) << " " << c.Describe();
    }
    EXPECT_TRUE(actual.accumulated == expected.accumulated) << target << " sum " << c.Describe();
    if (::testing::Test::HasFailure()) return;
  }
}

// Every length from 0 to three blocks and one.
TEST(CodecTargets, EveryLength) {
  constexpr int32_t kBlocks[] = {32, 64, 128};
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    for (int64_t elems = 0; elems <= 3 * spec.block_elems + 1; ++elems) {
      const DType dtype = kDTypes[elems % 3];
      ExpectSameOnAllTargets({spec, dtype, Pattern::kNormal, elems, 0});
      if (HasFailure()) return;
    }
  }
}

TEST(CodecTargets, EveryBlockSizeAroundItsBorders) {
  constexpr int32_t kBlocks[] = {32, 64, 128, 256, 512, 1024, 2048};
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    const int64_t block = spec.block_elems;
    for (int64_t elems : {block - 1, block, block + 1, 2 * block + block / 2 + 3, 3 * block + 1}) {
      ExpectSameOnAllTargets({spec, DType::kF32, Pattern::kRandomBits, elems, 0});
      if (HasFailure()) return;
    }
  }
}

TEST(CodecTargets, EveryMisalignment) {
  constexpr int32_t kBlocks[] = {64, 256};
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    for (size_t misaligned = 0; misaligned < 64; ++misaligned) {
      const DType dtype = kDTypes[misaligned % 3];
      const int64_t elems = 2 * spec.block_elems + static_cast<int64_t>(misaligned);
      ExpectSameOnAllTargets({spec, dtype, Pattern::kNormal, elems, misaligned});
      if (HasFailure()) return;
    }
  }
}

TEST(CodecTargets, EveryPatternInEveryType) {
  constexpr int32_t kBlocks[] = {32, 128};
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    for (Pattern pattern : AllPatterns()) {
      for (DType dtype : kDTypes) {
        ExpectSameOnAllTargets({spec, dtype, pattern, 5000, 0});
        if (HasFailure()) return;
      }
    }
  }
}

TEST(CodecTargets, UnknownTargetIsNamed) {
  const Status status = SetCodecTarget("AVX9");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("AVX9"));
  EXPECT_EQ(CodecTargets().back(), "scalar");
  EXPECT_EQ(CurrentCodecTarget(), CodecTargets().front());
}

}  // namespace
}  // namespace zpp::testing
