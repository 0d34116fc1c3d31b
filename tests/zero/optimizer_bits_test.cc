// The same bits from every SIMD target, at every length and alignment, however a shard is cut; and
// nothing written beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "common/float_bits.h"
#include "tests/quant/codec_cases.h"
#include "zero/internal/optimizer_kernels.h"
#include "zero/optimizer.h"

namespace zpp::testing {
namespace {

// fp32 arrays that start `misaligned` elements behind an aligned address, each with sentinels.
class Arrays {
 public:
  Arrays(Pattern pattern, int64_t elems, size_t misaligned)
      : elems_(static_cast<size_t>(elems)),
        master(DType::kF32, Make(pattern, elems, 1), 4 * misaligned),
        first(DType::kF32, Make(pattern, elems, 2), 4 * (misaligned % 3)),
        second(DType::kF32, Squares(elems), 4 * (misaligned % 5)),
        grad(DType::kF32, Make(pattern, elems, 4), 4 * (misaligned % 7)) {}

  std::span<float> floats(Guarded& array) {
    return {reinterpret_cast<float*>(array.data()), elems_};
  }
  // All bytes that a step may have changed, after checking those that it may not.
  std::vector<std::byte> Bytes() {
    EXPECT_TRUE(master.intact() && first.intact() && second.intact() && grad.intact());
    std::vector<std::byte> all;
    for (Guarded* array : {&master, &first, &second, &grad}) {
      const std::vector<std::byte> bytes = array->copy();
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

 private:
  static std::vector<float> Squares(int64_t elems) {
    std::vector<float> values = Make(Pattern::kNormal, elems, 3);
    for (float& x : values) x *= x;
    return values;
  }

  size_t elems_;

 public:
  Guarded master, first, second, grad;
};

constexpr AdamScalars kAdam{.grad_scale = 0.3f,
                            .l2 = 0,
                            .decay = 0.99f,
                            .mean_rate = 0.1f,
                            .square_keep = 0.999f,
                            .square_rate = 0.001f,
                            .inverse_c2 = 1.7f,
                            .eps = 1e-8f,
                            .step_size = 0.013f};

std::vector<AdamScalars> AdamCases() {
  AdamScalars l2 = kAdam;
  l2.l2 = 0.1f;
  l2.decay = 1;
  return {kAdam, l2};
}

std::vector<SgdScalars> SgdCases() {
  std::vector<SgdScalars> cases;
  for (float decay : {0.0f, 0.1f}) {
    SgdScalars s{.grad_scale = 0.3f, .l2 = decay, .lr = 0.01f};
    cases.push_back(s);
    s.has_momentum = true;
    s.momentum = 0.9f;
    s.gradient_share = 0.7f;
    for (bool first : {false, true}) {
      for (bool nesterov : {false, true}) {
        s.first = first;
        s.nesterov = nesterov;
        cases.push_back(s);
      }
    }
  }
  return cases;
}

std::vector<std::byte> AdamBytes(const OptimizerKernels& kernels, const AdamScalars& s,
                                 Arrays arrays, int64_t elems) {
  kernels.adam(s,
               {.master = arrays.floats(arrays.master).data(),
                .m = arrays.floats(arrays.first).data(),
                .v = arrays.floats(arrays.second).data(),
                .grad = arrays.floats(arrays.grad).data()},
               elems);
  return arrays.Bytes();
}

std::vector<std::byte> SgdBytes(const OptimizerKernels& kernels, const SgdScalars& s, Arrays arrays,
                                int64_t elems) {
  float* momentum = s.has_momentum ? arrays.floats(arrays.first).data() : nullptr;
  kernels.sgd(s,
              {.master = arrays.floats(arrays.master).data(),
               .momentum = momentum,
               .grad = arrays.floats(arrays.grad).data()},
              elems);
  return arrays.Bytes();
}

void ExpectSameOnAllTargets(Pattern pattern, int64_t elems, size_t misaligned) {
  const Arrays arrays(pattern, elems, misaligned);
  const auto where = [&](const OptimizerKernels& kernels) {
    return std::string(kernels.name) + " " + Name(pattern) + " n=" + std::to_string(elems) +
           " off=" + std::to_string(misaligned);
  };
  for (const OptimizerKernels* kernels : SimdOptimizerKernels()) {
    for (const AdamScalars& s : AdamCases()) {
      ASSERT_TRUE(AdamBytes(*kernels, s, arrays, elems) ==
                  AdamBytes(ScalarOptimizerKernels(), s, arrays, elems))
          << "Adam " << where(*kernels);
    }
    for (const SgdScalars& s : SgdCases()) {
      ASSERT_TRUE(SgdBytes(*kernels, s, arrays, elems) ==
                  SgdBytes(ScalarOptimizerKernels(), s, arrays, elems))
          << "SGD " << where(*kernels);
    }
  }
}

TEST(OptimizerBits, EveryLength) {
  for (int64_t elems = 0; elems <= 100; ++elems) {
    ExpectSameOnAllTargets(Pattern::kNormal, elems, 0);
    if (HasFatalFailure()) return;
  }
}

TEST(OptimizerBits, EveryMisalignment) {
  for (size_t misaligned = 0; misaligned < 16; ++misaligned) {
    ExpectSameOnAllTargets(Pattern::kNormal, 211, misaligned);
    if (HasFatalFailure()) return;
  }
}

// Subnormals, infinities, overflowing squares. NaNs are looked at elsewhere: which NaN an operation
// of two gives is the CPU's choice.
TEST(OptimizerBits, EveryFinitePattern) {
  for (Pattern pattern : {Pattern::kRandomBits, Pattern::kEdges, Pattern::kTiny, Pattern::kHuge}) {
    ExpectSameOnAllTargets(pattern, 4001, 1);
    if (HasFatalFailure()) return;
  }
}

using Pair = std::pair<uint64_t, uint64_t>;

std::vector<Pair> SortedSquares(const OptimizerKernels& kernels, const float* values) {
  SquareGroup group;
  kernels.squares(values, group);
  std::vector<Pair> pairs;
  for (size_t i = 0; i < SquareGroup::kElems; ++i) {
    pairs.emplace_back(group.exponents[i], group.squares[i]);
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

TEST(OptimizerBits, SquaresAreTheSameOnAllTargets) {
  constexpr auto kElems = static_cast<int64_t>(SquareGroup::kElems);
  for (Pattern pattern : AllPatterns()) {
    for (size_t misaligned : {0, 1, 7, 15}) {
      Guarded values(DType::kF32, Make(pattern, kElems, misaligned), 4 * misaligned);
      const auto* floats = reinterpret_cast<const float*>(values.data());
      for (const OptimizerKernels* kernels : SimdOptimizerKernels()) {
        EXPECT_EQ(SortedSquares(*kernels, floats), SortedSquares(ScalarOptimizerKernels(), floats))
            << kernels->name << " " << Name(pattern) << " off=" << misaligned;
      }
    }
  }
}

struct Shard {
  std::vector<float> master, m, v, grad;
  std::vector<std::byte> weights;
  bool operator==(const Shard&) const = default;
};

Shard MakeShard(int64_t elems, DType dtype) {
  return {Make(Pattern::kNormal, elems, 1), std::vector<float>(static_cast<size_t>(elems)),
          std::vector<float>(static_cast<size_t>(elems)), Make(Pattern::kNormal, elems, 2),
          std::vector<std::byte>(static_cast<size_t>(elems * SizeOf(dtype)), std::byte{0xa5})};
}

// One step of [at, at + count).
void StepPart(Shard& shard, DType dtype, size_t at, size_t count, StoreHint stores) {
  const auto part = [&](std::vector<float>& floats) {
    return std::span<float>(floats).subspan(at, count);
  };
  std::byte* weights = shard.weights.data() + at * static_cast<size_t>(SizeOf(dtype));
  ASSERT_TRUE(AdamStep({.weight_decay = 0.1}, 3, 0.5f,
                       {.master = part(shard.master),
                        .m = part(shard.m),
                        .v = part(shard.v),
                        .grad = part(shard.grad),
                        .weights_out = {dtype, weights, static_cast<int64_t>(count)},
                        .stores = stores})
                  .ok());
}

TEST(OptimizerBits, CutsDoNotMatter) {
  constexpr int64_t kElems = 10007;
  std::mt19937 rng(5);
  for (DType dtype : kDTypes) {
    Shard whole = MakeShard(kElems, dtype);
    StepPart(whole, dtype, 0, kElems, StoreHint::kAuto);
    for (StoreHint stores : {StoreHint::kAuto, StoreHint::kStream}) {
      for (size_t longest : {1, 17, 1024, 5000}) {
        Shard cut = MakeShard(kElems, dtype);
        for (size_t at = 0; at < kElems;) {
          const size_t count = std::min<size_t>(1 + rng() % longest, kElems - at);
          StepPart(cut, dtype, at, count, stores);
          at += count;
        }
        EXPECT_TRUE(cut == whole) << DTypeName(dtype) << " in pieces of up to " << longest;
      }
    }
  }
}

float WeightAt(DType dtype, const std::byte* weights, size_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, weights + 4 * i, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, weights + 2 * i, 2);
  return dtype == DType::kF16 ? F32FromF16(half) : F32FromBF16(half);
}

float Rounded(DType dtype, float x) {
  if (dtype == DType::kF16) return F32FromF16(F16FromF32(x));
  return dtype == DType::kBF16 ? F32FromBF16(BF16FromF32(x)) : x;
}

TEST(OptimizerBits, WeightsAreTheRoundedMasterAtAnyAddress) {
  for (DType dtype : kDTypes) {
    for (size_t misaligned : {0, 1, 2, 3, 4, 31, 32, 62, 63}) {
      for (size_t elems : {1, 31, 1023, 1024, 1025, 3000}) {
        for (StoreHint stores : {StoreHint::kAuto, StoreHint::kStream}) {
          const std::vector<float> grad(elems, 0.5f);
          std::vector<float> master = Make(Pattern::kNormal, static_cast<int64_t>(elems), 3);
          Guarded out(elems * static_cast<size_t>(SizeOf(dtype)), misaligned);
          ASSERT_TRUE(SgdStep({.lr = 0.1}, 1, 1,
                              {.master = master,
                               .momentum = {},
                               .grad = grad,
                               .weights_out = out.out(dtype),
                               .stores = stores})
                          .ok());
          ASSERT_TRUE(out.intact()) << DTypeName(dtype) << " " << misaligned << " " << elems;
          for (size_t i = 0; i < elems; ++i) {
            ASSERT_EQ(WeightAt(dtype, out.data(), i), Rounded(dtype, master[i]))
                << DTypeName(dtype) << " off=" << misaligned << " element " << i;
          }
        }
      }
    }
  }
}

// Unscaling, clipping and averaging in one factor is the same as scaled gradients.
TEST(OptimizerBits, GradScaleIsOneMultiplication) {
  Shard scaled = MakeShard(1000, DType::kF32);
  Shard plain = scaled;
  for (float& g : plain.grad) g *= 0.37f;
  for (auto [shard, scale] : {std::pair(&scaled, 0.37f), std::pair(&plain, 1.0f)}) {
    ASSERT_TRUE(AdamStep({}, 1, scale,
                         {.master = shard->master,
                          .m = shard->m,
                          .v = shard->v,
                          .grad = shard->grad,
                          .weights_out = {}})
                    .ok());
  }
  EXPECT_EQ(scaled.master, plain.master);
  EXPECT_EQ(scaled.m, plain.m);
  EXPECT_EQ(scaled.v, plain.v);
}

}  // namespace
}  // namespace zpp::testing
