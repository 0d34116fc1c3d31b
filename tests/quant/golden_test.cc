// The bytes on the wire are frozen: tests/golden holds what each encoding writes for one input.
//
// To write them anew after an intended change of the format (which also needs a new kWireVersion):
//   ZPP_GOLDEN_WRITE=1 build/<preset>/tests/quant/golden_test
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "common/float_bits.h"
#include "tests/quant/codec_cases.h"

namespace zpp::testing {
namespace {

constexpr int64_t kElems = 333;
constexpr NoiseKey kNoise{.seed = 0xfeedface, .step = 3, .first_elem = 64};

// No library's random numbers: a golden input must be the same everywhere.
std::vector<float> GoldenInput() {
  std::vector<float> x(kElems);
  uint32_t state = 1;
  for (size_t i = 0; i < x.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    const float unit = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    x[i] = unit * unit * unit * (i < 128 ? 1.0f : 1e-3f);
  }
  for (size_t i = 256; i < 288; ++i) x[i] = 0;
  x[300] = -0.0f;
  return x;
}

std::string FileOf(const QuantSpec& spec) {
  std::string name = ToString(spec);
  for (char& c : name) c = c == '/' ? '_' : c;
  return std::string(ZPP_GOLDEN_DIR) + "/" + name + ".bin";
}

std::vector<std::byte> Message(const QuantSpec& spec) {
  std::vector<std::byte> message(static_cast<size_t>(kWireHeader_bytes));
  WriteWireHeader({spec, kElems}, message);
  const std::vector<std::byte> payload = EncodeF32(spec, GoldenInput(), kNoise);
  message.insert(message.end(), payload.begin(), payload.end());
  return message;
}

std::vector<std::byte> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

TEST(Golden, BytesOnTheWireAreFrozen) {
  constexpr int32_t kBlocks[] = {32, 128};
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    const std::string path = FileOf(spec);
    if (std::getenv("ZPP_GOLDEN_WRITE") != nullptr) {
      const std::vector<std::byte> message = Message(spec);
      std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(message.data()),
                 static_cast<std::streamsize>(message.size()));
    }
    const std::vector<std::byte> golden = ReadFile(path);
    ASSERT_FALSE(golden.empty()) << path;
    for (std::string_view target : CodecTargets()) {
      const WithTarget use(target);
      EXPECT_TRUE(Message(spec) == golden) << path << " on " << target;
    }
  }
}

TEST(Golden, MessagesReadBack) {
  constexpr int32_t kBlocks[] = {32, 128};
  for (const QuantSpec& spec : AllSpecs(kBlocks)) {
    const std::vector<std::byte> golden = ReadFile(FileOf(spec));
    const Result<WireHeader> header = ReadWireHeader(golden);
    ASSERT_TRUE(header.ok()) << header.status().ToString();
    EXPECT_EQ(header->spec, spec);
    EXPECT_EQ(header->elems, kElems);
    const auto payload = std::span(golden).subspan(static_cast<size_t>(kWireHeader_bytes));
    EXPECT_TRUE(CheckPayload(spec, kElems, payload).ok());
    const std::vector<float> x = GoldenInput();
    const std::vector<float> y = DecodeF32(spec, payload, kElems);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], x[i], 0.25f) << ToString(spec);
    for (size_t i = 256; i < 288; ++i) EXPECT_EQ(y[i], 0.0f);
  }
}

}  // namespace
}  // namespace zpp::testing
