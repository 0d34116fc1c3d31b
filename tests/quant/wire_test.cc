#include "quant/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "quant/codec.h"
#include "tests/quant/codec_cases.h"

namespace zpp::testing {
namespace {

using ::testing::HasSubstr;

TEST(QuantSpec, TextAndBack) {
  constexpr int32_t kBlocks[] = {32, 256, 2048};
  std::vector<QuantSpec> specs = AllSpecs(kBlocks);
  for (DType dtype : kDTypes) specs.push_back(QuantSpec::None(dtype));
  for (const QuantSpec& spec : specs) {
    ASSERT_TRUE(Validate(spec).ok()) << ToString(spec);
    const Result<QuantSpec> parsed = ParseQuantSpec(ToString(spec));
    ASSERT_TRUE(parsed.ok()) << ToString(spec);
    EXPECT_EQ(*parsed, spec);
  }
  EXPECT_EQ(ToString(QuantSpec::None()), "none/fp32");
  EXPECT_EQ(ToString(QuantSpec::Int8()), "int8/256");
  EXPECT_EQ(ToString(QuantSpec::Int4(Code::kSqrt)), "int4/128/sqrt");
  EXPECT_EQ(ToString(*ParseQuantSpec("int4/stochastic/fp32-scales")),
            "int4/128/linear/stochastic/fp32-scales");
  EXPECT_EQ(*ParseQuantSpec("int4"), QuantSpec::Int4(Code::kLinear));
  EXPECT_EQ(*ParseQuantSpec("none/bf16"), QuantSpec::None(DType::kBF16));
}

TEST(QuantSpec, BadTextIsNamed) {
  for (const char* text : {"",
                           "int2",
                           "int8/",
                           "int8/0",
                           "int8/-256",
                           "int8/16",
                           "int8/4096",
                           "int8/100",
                           "int8/256x",
                           "int8/sqrt",
                           "int4/cubic",
                           "none/int8",
                           "none/fp32/fp32",
                           "none/byte",
                           "int8/99999999999999999999",
                           "INT8",
                           "int8/64/256",
                           "int4/linear/sqrt",
                           "int8/nearest/nearest",
                           "int4/fp32-scales/64/bf16-scales"}) {
    const Result<QuantSpec> spec = ParseQuantSpec(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(spec.status().message(), HasSubstr("'" + std::string(text) + "'"));
  }
}

TEST(QuantSpec, RotationIsReserved) {
  QuantSpec spec = QuantSpec::Int8();
  spec.rotation = 1;
  EXPECT_EQ(Validate(spec).code(), StatusCode::kUnimplemented);
  spec = QuantSpec::None();
  spec.block_elems = 256;
  EXPECT_EQ(Validate(spec).code(), StatusCode::kInvalidArgument);
  spec = QuantSpec::Int8();
  spec.format = static_cast<Format>(9);
  EXPECT_EQ(Validate(spec).code(), StatusCode::kInvalidArgument);
}

TEST(Wire, PayloadBytesByHand) {
  EXPECT_EQ(PayloadBytes(QuantSpec::None(), 3), 12);
  EXPECT_EQ(PayloadBytes(QuantSpec::None(DType::kBF16), 3), 6);
  for (const char* text : {"int8", "int4", "none"}) {
    EXPECT_EQ(PayloadBytes(*ParseQuantSpec(text), 0), 0) << text;
    EXPECT_EQ(MessageBytes(*ParseQuantSpec(text), 0), 0) << text;
  }
  EXPECT_EQ(PayloadBytes(QuantSpec::Int8(256), 1), 16 + 1);
  EXPECT_EQ(PayloadBytes(QuantSpec::Int8(256), 257), 16 + 257);
  EXPECT_EQ(PayloadBytes(QuantSpec::Int8(256), 9 * 256), 32 + 9 * 256);
  EXPECT_EQ(PayloadBytes(QuantSpec::Int4(Code::kSqrt, 128), 129), 16 + 65);
  EXPECT_EQ(PayloadBytes(*ParseQuantSpec("int8/32/fp32-scales"), 160), 32 + 160);
  EXPECT_EQ(MessageBytes(QuantSpec::Int8(), 1), 16 + 17);
  EXPECT_EQ(MessageBytes(QuantSpec::None(), 1), 4);
  EXPECT_GT(PayloadBytes(QuantSpec::None(), kMaxWire_elems), 0);
}

std::vector<std::byte> Written(const WireHeader& header) {
  std::vector<std::byte> bytes(static_cast<size_t>(kWireHeader_bytes));
  WriteWireHeader(header, bytes);
  return bytes;
}

TEST(Wire, HeaderAndBack) {
  constexpr int32_t kBlocks[] = {32, 64, 128, 256, 512, 1024, 2048};
  std::vector<QuantSpec> specs = AllSpecs(kBlocks);
  for (DType dtype : kDTypes) specs.push_back(QuantSpec::None(dtype));
  for (const QuantSpec& spec : specs) {
    for (int64_t elems : {int64_t{0}, int64_t{1}, int64_t{0x123456789a}, kMaxWire_elems}) {
      const Result<WireHeader> header = ReadWireHeader(Written({spec, elems}));
      ASSERT_TRUE(header.ok()) << header.status().ToString();
      EXPECT_EQ(*header, (WireHeader{spec, elems}));
    }
  }
}

TEST(Wire, HeaderByHand) {
  const uint8_t expected[] = {'Z', 'Q', 1, 2, 1, 7, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0};
  uint8_t check = 0x5a;
  for (uint8_t byte : expected) check = static_cast<uint8_t>(check ^ byte);
  std::vector<std::byte> bytes = Written({QuantSpec::Int4(Code::kSqrt), 0x1234});
  EXPECT_EQ(std::to_integer<uint8_t>(bytes[7]), check);
  bytes[7] = std::byte{0};
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof expected), 0);
}

// Any one flipped bit is found, and so is any cut.
TEST(Wire, EveryFlippedBitIsFound) {
  const std::vector<std::byte> good = Written({QuantSpec::Int8(), 1000});
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(ReadWireHeader(bad).status().code(), StatusCode::kDataLoss) << bit;
  }
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_EQ(ReadWireHeader(std::span(good).first(length)).status().code(), StatusCode::kDataLoss);
  }
}

TEST(Wire, NewerVersionIsNamed) {
  std::vector<std::byte> bytes = Written({QuantSpec::Int8(), 1000});
  bytes[2] = std::byte{9};
  const Result<WireHeader> header = ReadWireHeader(bytes);
  EXPECT_THAT(header.status().message(), HasSubstr("version 9"));
}

TEST(CheckPayload, RefusesWhatEncodeNeverWrites) {
  const std::vector<float> x = Make(Pattern::kNormal, 301, 1);
  const auto refuses = [&](const char* text, size_t at, int value) {
    const QuantSpec spec = *ParseQuantSpec(text);
    std::vector<std::byte> payload = EncodeF32(spec, x);
    ASSERT_TRUE(CheckPayload(spec, 301, payload).ok()) << text;
    payload[at] = static_cast<std::byte>(value);
    EXPECT_EQ(CheckPayload(spec, 301, payload).code(), StatusCode::kDataLoss) << text << " " << at;
  };
  refuses("int8", 16, 0x80);                 // code -128
  refuses("int8", 1, 0xbf);                  // a negative scale
  refuses("int8", 1, 0x00);                  // a tiny scale
  refuses("int8", 1, 0x7f);                  // values beyond fp32, or a strange NaN
  refuses("int8", 15, 1);                    // padding
  refuses("int4/stochastic", 16 + 3, 0x08);  // code -8
  refuses("int4", 16 + 150, 0x10);           // the unused nibble
  refuses("int8/fp32-scales", 0, 1);         // a bit that scales do not keep
  EXPECT_EQ(CheckPayload(QuantSpec::Int8(), 301, {}).code(), StatusCode::kDataLoss);
}

TEST(Codec, WrongSizesAndTypesAreRefusedBeforeAnythingIsWritten) {
  const QuantSpec spec = QuantSpec::Int8();
  std::vector<float> x(100, 1.0f);
  std::vector<std::byte> payload(static_cast<size_t>(PayloadBytes(spec, 100)), std::byte{9});
  const std::vector<std::byte> untouched = payload;
  const auto bad = StatusCode::kInvalidArgument;
  EXPECT_EQ(Encode(spec, {DType::kF32, x.data(), 101}, payload).code(), bad);
  EXPECT_EQ(Encode(spec, {DType::kByte, x.data(), 100}, payload).code(), bad);
  EXPECT_EQ(Encode(spec, {DType::kF32, nullptr, 100}, payload).code(), bad);
  EXPECT_EQ(Encode(spec, {DType::kF32, x.data(), -1}, payload).code(), bad);
  QuantSpec no_blocks = spec;
  no_blocks.block_elems = 0;
  EXPECT_EQ(PayloadBytes(no_blocks, 100), 0);
  EXPECT_EQ(Encode(no_blocks, {DType::kF32, x.data(), 100}, {}).code(), bad);
  EXPECT_EQ(payload, untouched);
  EXPECT_EQ(Decode(spec, payload, {DType::kF32, x.data(), 99}).code(), bad);
  EXPECT_EQ(DecodeAccumulate(spec, std::span(payload).first(10), x).code(), bad);
  EXPECT_EQ(x, std::vector<float>(100, 1.0f));
}

}  // namespace
}  // namespace zpp::testing
