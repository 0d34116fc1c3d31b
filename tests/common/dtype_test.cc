#include "common/dtype.h"

#include <gtest/gtest.h>

namespace zpp {
namespace {

TEST(DType, NamesParseBack) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kByte}) {
    const Result<DType> parsed = ParseDType(DTypeName(dtype));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, dtype);
  }
  EXPECT_EQ(*ParseDType("bfloat16"), DType::kBF16);
  EXPECT_EQ(*ParseDType("half"), DType::kF16);
}

TEST(DType, UnknownNameIsNamed) {
  const Status status = ParseDType("fp64").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'fp64'"), std::string::npos);
  EXPECT_FALSE(ParseDType("").ok());
}

TEST(DType, Sizes) {
  EXPECT_EQ(SizeOf(DType::kF32), 4);
  EXPECT_EQ(SizeOf(DType::kF16), 2);
  EXPECT_EQ(SizeOf(DType::kBF16), 2);
  EXPECT_EQ(SizeOf(DType::kByte), 1);
}

}  // namespace
}  // namespace zpp
