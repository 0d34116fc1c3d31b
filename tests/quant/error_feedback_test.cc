#include "quant/error_feedback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/quant/codec_cases.h"

namespace zpp::testing {
namespace {

constexpr ResidualType kTypes[] = {ResidualType::kF32, ResidualType::kBF16, ResidualType::kInt8};
const QuantSpec kSpec = QuantSpec::Int4(Code::kSqrt);

ErrorFeedback Make(int64_t elems, ResidualType type) {
  Result<ErrorFeedback> feedback = ErrorFeedback::Create(elems, type);
  EXPECT_TRUE(feedback.ok());
  return std::move(feedback).value();
}

// Encodes x in one go and returns what arrives.
std::vector<float> Send(ErrorFeedback& feedback, const std::vector<float>& x) {
  const int64_t elems = static_cast<int64_t>(x.size());
  std::vector<std::byte> payload(static_cast<size_t>(PayloadBytes(kSpec, elems)));
  EXPECT_TRUE(feedback.Encode(kSpec, 0, {DType::kF32, x.data(), elems}, payload).ok());
  return DecodeF32(kSpec, payload, elems);
}

std::vector<float> Residual(const ErrorFeedback& feedback) {
  std::vector<float> residual(static_cast<size_t>(feedback.elems()), -1.0f);
  EXPECT_TRUE(feedback.Read(residual).ok());
  return residual;
}

double Norm(const std::vector<float>& x) {
  double sum = 0;
  for (float value : x) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

TEST(ErrorFeedback, KeepsWhatWasLost) {
  for (int64_t elems : {0, 1, 127, 2048, 5001}) {
    const std::vector<float> x = testing::Make(Pattern::kNormal, elems, 1);
    ErrorFeedback feedback = Make(elems, ResidualType::kF32);
    const std::vector<float> y = Send(feedback, x);
    const std::vector<float> residual = Residual(feedback);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(residual[i], x[i] - y[i]);
  }
}

// Summed over steps, what arrives is what was sent but for the last residual.
TEST(ErrorFeedback, NothingIsLostOverManySteps) {
  for (ResidualType type : kTypes) {
    ErrorFeedback feedback = Make(4096, type);
    std::vector<float> sent(4096), received(4096), plain(4096);
    for (uint64_t step = 0; step < 50; ++step) {
      std::vector<float> x = testing::Make(Pattern::kNormal, 4096, step);
      for (float& value : x) value += 0.05f;
      const std::vector<float> y = Send(feedback, x);
      const std::vector<float> without = DecodeF32(kSpec, EncodeF32(kSpec, x), 4096);
      for (size_t i = 0; i < x.size(); ++i) {
        sent[i] += x[i];
        received[i] += y[i] - x[i];
        plain[i] += without[i] - x[i];
      }
    }
    EXPECT_LT(Norm(received), 0.05 * Norm(sent)) << static_cast<int>(type);
    EXPECT_LT(Norm(received), 0.4 * Norm(plain)) << static_cast<int>(type);
  }
}

TEST(ErrorFeedback, TypesDifferInBytesOnly) {
  EXPECT_EQ(Make(4096, ResidualType::kF32).bytes(), 4 * 4096);
  EXPECT_EQ(Make(4096, ResidualType::kBF16).bytes(), 2 * 4096);
  EXPECT_EQ(Make(4096, ResidualType::kInt8).bytes(), 4096 + 2 * 16);
  const std::vector<float> x = testing::Make(Pattern::kNormal, 4096, 1);
  for (ResidualType type : kTypes) {
    ErrorFeedback exact = Make(4096, ResidualType::kF32);
    ErrorFeedback kept = Make(4096, type);
    Send(exact, x);
    Send(kept, x);
    std::vector<float> difference = Residual(exact);
    const std::vector<float> other = Residual(kept);
    for (size_t i = 0; i < x.size(); ++i) difference[i] -= other[i];
    EXPECT_LE(Norm(difference), 0.01 * Norm(other)) << static_cast<int>(type);
  }
}

TEST(ErrorFeedback, PiecesEqualTheWhole) {
  const std::vector<float> x = testing::Make(Pattern::kNormal, 3 * 2048 + 77, 1);
  ErrorFeedback whole = Make(static_cast<int64_t>(x.size()), ResidualType::kBF16);
  ErrorFeedback pieces = Make(static_cast<int64_t>(x.size()), ResidualType::kBF16);
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> y = Send(whole, x);
    ASSERT_TRUE(whole.Scale(0.5f).ok());
    for (int64_t at = 0; at < pieces.elems(); at += 4096) {
      const int64_t elems = std::min<int64_t>(4096, pieces.elems() - at);
      std::vector<std::byte> payload(static_cast<size_t>(PayloadBytes(kSpec, elems)));
      ASSERT_TRUE(pieces.Encode(kSpec, at, {DType::kF32, x.data() + at, elems}, payload).ok());
      const std::vector<float> z = DecodeF32(kSpec, payload, elems);
      for (size_t i = 0; i < z.size(); ++i) ASSERT_EQ(z[i], y[static_cast<size_t>(at) + i]);
    }
    ASSERT_TRUE(pieces.Scale(0.5f).ok());
  }
  EXPECT_EQ(Residual(whole), Residual(pieces));
}

TEST(ErrorFeedback, ScaleIsLazyAndExact) {
  const std::vector<float> x = testing::Make(Pattern::kNormal, 3000, 1);
  for (ResidualType type : kTypes) {
    ErrorFeedback feedback = Make(3000, type);
    Send(feedback, x);
    const std::vector<float> before = Residual(feedback);
    ASSERT_TRUE(feedback.Scale(0.25f).ok());
    ASSERT_TRUE(feedback.Scale(8.0f).ok());
    const std::vector<float> after = Residual(feedback);
    for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(after[i], 2 * before[i]);
    EXPECT_FALSE(feedback.Scale(NAN).ok());
    EXPECT_FALSE(feedback.Scale(INFINITY).ok());
    ASSERT_TRUE(feedback.Scale(0).ok());
    EXPECT_EQ(Norm(Residual(feedback)), 0);
  }
}

TEST(ErrorFeedback, DropAndFlush) {
  const std::vector<float> x = testing::Make(Pattern::kNormal, 3000, 1);
  ErrorFeedback feedback = Make(3000, ResidualType::kF32);
  Send(feedback, x);
  const std::vector<float> residual = Residual(feedback);
  std::vector<float> exact = testing::Make(Pattern::kNormal, 3000, 2);
  const std::vector<float> before = exact;
  ASSERT_TRUE(feedback.Flush(exact).ok());
  for (size_t i = 0; i < exact.size(); ++i) ASSERT_EQ(exact[i], before[i] + residual[i]);
  EXPECT_EQ(Norm(Residual(feedback)), 0);
  Send(feedback, x);
  feedback.Drop();
  EXPECT_EQ(Norm(Residual(feedback)), 0);
}

// A row whose gradient stopped: its residual shrinks by 0.3 a step, through the subnormals, to zero
// and never to NaN.
TEST(ErrorFeedback, ResidualsOfARowThatStoppedEndInZeros) {
  for (ResidualType type : kTypes) {
    ErrorFeedback feedback = Make(2048, type);
    std::vector<float> x = testing::Make(Pattern::kNormal, 2048, 1);
    for (float& value : x) value *= 1e-6f;
    Send(feedback, x);
    const std::vector<float> zeros(2048, 0.0f);
    for (int step = 0; step < 60; ++step) {
      ASSERT_TRUE(feedback.Scale(0.3f).ok());
      for (float value : Send(feedback, zeros)) ASSERT_TRUE(std::isfinite(value));
      for (float value : Residual(feedback)) ASSERT_TRUE(std::isfinite(value));
    }
    for (float value : Residual(feedback)) ASSERT_EQ(value, 0.0f) << static_cast<int>(type);
  }
}

TEST(ErrorFeedback, AnOverflowLeavesNoNaNBehind) {
  std::vector<float> x = testing::Make(Pattern::kNormal, 2048, 1);
  x[100] = INFINITY;
  for (ResidualType type : kTypes) {
    ErrorFeedback feedback = Make(2048, type);
    const std::vector<float> y = Send(feedback, x);
    EXPECT_TRUE(std::isnan(y[100]));
    for (float value : Residual(feedback)) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(ErrorFeedback, StatisticsArePunishedByTheCodecOnly) {
  const std::vector<float> x = testing::Make(Pattern::kNormal, 1 << 16, 1);
  ErrorFeedback feedback = Make(1 << 16, ResidualType::kF32);
  for (int step = 0; step < 5; ++step) {
    ErrorStats stats;
    std::vector<std::byte> payload(static_cast<size_t>(PayloadBytes(kSpec, 1 << 16)));
    ASSERT_TRUE(
        feedback.Encode(kSpec, 0, {DType::kF32, x.data(), 1 << 16}, payload, {}, &stats).ok());
    EXPECT_LT(stats.relative_error(), 0.115);
  }
}

TEST(ErrorFeedback, WriteRestoresACheckpoint) {
  const std::vector<float> x = testing::Make(Pattern::kNormal, 3000, 1);
  for (ResidualType type : kTypes) {
    ErrorFeedback feedback = Make(3000, type);
    Send(feedback, x);
    const std::vector<float> saved = Residual(feedback);
    ErrorFeedback restored = Make(3000, type);
    ASSERT_TRUE(restored.Write(saved).ok());
    EXPECT_EQ(Bits(Residual(restored)), Bits(saved));
  }
}

TEST(ErrorFeedback, BadArgumentsAreNamed) {
  EXPECT_FALSE(ErrorFeedback::Create(-1, ResidualType::kF32).ok());
  EXPECT_FALSE(ErrorFeedback::Create(10, ResidualType::kInt8, 7).ok());
  ErrorFeedback feedback = Make(5000, ResidualType::kF32);
  std::vector<float> x(5000);
  std::vector<std::byte> payload(static_cast<size_t>(PayloadBytes(kSpec, 100)));
  EXPECT_FALSE(feedback.Encode(kSpec, 0, {DType::kF32, x.data(), 100}, payload).ok());
  EXPECT_FALSE(feedback.Encode(kSpec, 4900, {DType::kF32, x.data(), 100}, payload).ok());
  EXPECT_FALSE(feedback.Encode(kSpec, 4096, {DType::kF32, x.data(), 2048}, payload).ok());
  EXPECT_FALSE(feedback.Encode(kSpec, 4096, {DType::kF32, x.data(), 904}, payload).ok());
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(feedback.Encode(kSpec, 2048, {DType::kF32, x.data(), kMost}, payload).ok());
  EXPECT_FALSE(feedback.Encode(kSpec, kMost / 2048 * 2048, {DType::kF32, x.data(), 4096}, {}).ok());
  EXPECT_FALSE(feedback.Encode(kSpec, -2048, {DType::kF32, x.data(), 2048}, {}).ok());
  std::vector<std::byte> last(static_cast<size_t>(PayloadBytes(kSpec, 904)));
  EXPECT_FALSE(feedback.Encode(kSpec, 4096, {DType::kF32, nullptr, 904}, last).ok());
  EXPECT_FALSE(feedback.Encode(kSpec, 4096, {DType::kByte, x.data(), 904}, last).ok());
  EXPECT_TRUE(feedback.Encode(kSpec, 4096, {DType::kF32, x.data(), 904}, last).ok());
  EXPECT_FALSE(feedback.Flush(std::span(x).first(10)).ok());
}

}  // namespace
}  // namespace zpp::testing
